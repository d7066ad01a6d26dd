from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("counters/", include("counters.urls")),
    path("orders/", include("orders.urls")),
    path("", include("postoffice.urls")),
]
