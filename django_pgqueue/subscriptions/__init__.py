"""
Subscriptions: who receives which messages, declared by the receiver.

    subscribe.py    @subscribe: a job for each message
    overlaps.py     two that a message could both match
    sync.py         what code declares becomes rows
    operate.py      what people do with subscriptions
    consume.py      @consume: a group reads a topic's log
    group.py        a consumer group, to be asked and moved
"""
