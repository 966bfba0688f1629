"""Groups take turns, and the people within each: whatever the order in which they came."""

from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.limits.fair_queue import FairQueue


def queue(*names: str) -> FairQueue[str, str]:
    """Two letters each: the group, and a person of it; the item is the name with its number."""
    made = FairQueue[str, str]()
    for number, (group, person) in enumerate(names):
        made.push(f"{group}{person}{number}", group=group, person=person)
    return made


def emptied(one: FairQueue[str, str], **how) -> list[str]:
    served = []
    while following := one.pop(**how):
        served.append(following[1])
    return served


def test_groups_take_turns_and_so_do_the_people_of_each():
    one = queue("aX", "aX", "aX", "aY", "bZ")
    assert emptied(one) == ["aX0", "bZ4", "aY3", "aX1", "aX2"]
    assert len(one) == 0 and one.pop() is None


def test_a_group_that_may_not_be_served_keeps_its_place():
    one = queue("aX", "bZ", "aX")
    assert one.pop(may=lambda group: group != "a") == ("b", "bZ1")
    assert one.pop(may=lambda group: group != "a") is None
    assert emptied(one) == ["aX0", "aX2"]


def test_the_group_with_the_smallest_load_is_next_and_equals_take_turns():
    load = Counter(a=2)
    one, served = queue("aX", "aX", "bY", "bY", "bY", "cZ"), ""
    while following := one.pop(load=load.__getitem__):
        load[following[0]] += 1
        served += following[0]
    assert served == "bcbaba"


def test_the_newest_item_of_the_longest_group_is_removed():
    one = queue("aX", "bY", "bY", "bZ")
    assert one.longest() == 3
    assert (one.length("b"), one.length_of_person("b", "Y"), one.length("c")) == (3, 2, 0)
    assert one.pop_newest_of_longest() == "bY2"
    assert emptied(one) == ["aX0", "bY1", "bZ3"]


def test_nothing_is_removed_from_an_empty_queue():
    with pytest.raises(ValueError):
        FairQueue[str, str]().pop_newest_of_longest()


@given(st.lists(st.one_of(st.tuples(st.sampled_from("abc"), st.sampled_from("XY")), st.sampled_from(["pop", "drop"]))))
def test_whatever_is_done_nothing_is_lost_and_nobody_waits_for_two_turns_of_another_group(steps):
    one, waiting, turns = FairQueue[str, int](), dict[str, deque[int]](), dict[str, Counter[str]]()
    for number, step in enumerate(steps):
        if step == "pop":
            following = one.pop()
            assert (following is None) == (not any(waiting.values()))
            if following:
                group, item = following
                waiting[group].remove(item)
                for other in [name for name in waiting if waiting[name] and name != group]:
                    turns[other][group] += 1
                    assert turns[other][group] <= 1
                turns[group] = Counter()
        elif step == "drop":
            if any(waiting.values()):
                item = one.pop_newest_of_longest()
                longest = max(map(len, waiting.values()))
                assert any(item in line and len(line) == longest for line in waiting.values())
                for line in waiting.values():
                    if item in line:
                        line.remove(item)
        else:
            group, person = step
            if not waiting.get(group):
                turns[group] = Counter()
            waiting.setdefault(group, deque()).append(number)
            one.push(number, group=group, person=person)
        assert len(one) == sum(map(len, waiting.values()))
