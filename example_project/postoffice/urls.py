from django.urls import path

from postoffice import views

urlpatterns = [
    path("", views.message_list, name="message-list"),
    path("messages/", views.Messages.as_view(), name="messages"),
    path("messages/<int:email_id>/", views.message, name="message"),
    path("messages/<int:email_id>/replies/", views.Replies.as_view(), name="replies"),
    path("health/", views.health, name="health"),
]
