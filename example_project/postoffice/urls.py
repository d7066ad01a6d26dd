from django.urls import path

from postoffice import views

urlpatterns = [
    path("", views.message_list, name="message-list"),
    path("messages/", views.Messages.as_view(), name="messages"),
    path("messages/<int:email_id>/", views.message, name="message"),
    path("health/", views.health, name="health"),
]
