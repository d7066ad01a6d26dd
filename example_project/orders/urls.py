from django.urls import path

from orders import views

urlpatterns = [
    path("", views.order_list, name="order-list"),
    path("place/", views.place, name="place-order"),
    path("<int:order_id>/", views.order, name="order"),
]
