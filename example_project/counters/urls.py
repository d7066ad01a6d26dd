from django.urls import path

from counters import views

urlpatterns = [path("", views.mail_counts, name="mail-counts")]
