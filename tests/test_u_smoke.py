import pytest
from django_pgqueue import Unique
from django_pgqueue.models import *
from tests.app.tasks import add, echo
@pytest.mark.django_db(transaction=True)
def test_it(capsys):
    t = add.using(unique=Unique())
    a = t.delay(1, 2); b = t.delay(1, right=2)
    print(a.id, a.created, b.id, b.created, b.conflict)
    r = t.bulk([[1,2],[3,4],{"left":3,"right":4},[5,6]])
    print([(x.id, x.conflict) for x in r])
    print(list(Job.objects.values_list("id","dedup_key","queued_key")))
    d = add.using(debounce="30s", key="x", max_wait="1m")
    x=d.delay(1,2); y=d.delay(3,4); print(x.id,y.id,y.conflict, Job.objects.get(pk=y.id).args)
    th = add.using(throttle="2/h", key="x")
    print([(th.delay(1,i).conflict) for i in range(4)])
    from django.contrib.auth.models import User
    from tests.app.models import Order
    Order.objects.create(name="a"); Order.objects.create(name="b")
    from django.db.models import Value
    print(t.from_queryset(Order.objects.all(), left="pk", right=Value(1)), t.from_queryset(Order.objects.all(), left="pk", right=Value(1)))
    print(list(Job.objects.values_list("id","dedup_key","queued_key")))
