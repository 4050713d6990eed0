from klamm.testing import ManualClock
from klamm.workers.reloading import Reloading


class Recorded:
    """Records the actions of a reload."""

    def __init__(self, numbers=(1, 2), replaces=True):
        self.calls = []
        self.numbers = numbers
        self.replaces = replaces
        self.clock = ManualClock()
        self.reloading = Reloading(self, self.clock)

    def ready_numbers(self):
        return self.numbers

    def reload_worker(self, number):
        self.calls.append(number)

    def say(self, line):
        self.calls.append(line)

    def replace_workers(self, left):
        self.calls.append(("replace", *left))
        return self.replaces

    def reloaded(self):
        self.calls.append("end")


def test_workers_reload_one_by_one_and_equal_lines_are_written_once():
    done = Recorded()
    done.reloading.start()
    assert done.calls == [1]
    done.reloading.worker_reloaded(1, ["applied"], [])
    assert done.calls == [1, "applied", 2]
    done.reloading.worker_reloaded(2, ["applied"], [])
    assert done.calls == [1, "applied", 2, "end"]
    assert not done.reloading.under_way


def test_a_report_of_only_one_worker_names_it():
    done = Recorded()
    done.reloading.start()
    done.reloading.worker_reloaded(1, [], [])
    done.reloading.worker_reloaded(2, ["a file is gone"], [])
    assert done.calls == [1, 2, "worker 2: a file is gone", "end"]


def test_settings_that_only_new_processes_read_replace_the_workers():
    done = Recorded()
    done.reloading.start()
    done.reloading.worker_reloaded(1, [], [("[server]", "why")])
    done.reloading.worker_reloaded(2, [], [("[server]", "why")])
    assert done.calls == [1, 2, ("replace", ("[server]", "why"))]
    assert done.reloading.under_way
    done.reloading.end()
    done.reloading.end()
    assert done.calls[-1] == "end"
    assert done.calls.count("end") == 1


def test_settings_that_need_a_new_parent_end_the_reload():
    done = Recorded(replaces=False)
    done.reloading.start()
    for number in (1, 2):
        done.reloading.worker_reloaded(number, [], [("[listeners.a]", "why")])
    assert done.calls == [1, 2, ("replace", ("[listeners.a]", "why")), "end"]


def test_a_worker_that_ends_meanwhile_is_left_out():
    done = Recorded()
    done.reloading.start()
    done.reloading.worker_ended(2)
    done.reloading.worker_ended(1)
    assert done.calls == [1, 2]
    # This answer comes late.
    done.reloading.worker_reloaded(1, ["late"], [])
    done.reloading.worker_reloaded(2, [], [])
    assert done.calls == [1, 2, "end"]


def test_a_reload_without_a_serving_worker_does_nothing():
    done = Recorded(numbers=())
    done.reloading.start()
    assert done.calls == ["end"]


def test_a_worker_that_does_not_answer_does_not_delay_the_others():
    done = Recorded()
    assert done.reloading.next_due_ns() is None
    done.reloading.start()
    done.clock.advance_ms(29_999)
    done.reloading.due()
    assert done.calls == [1]
    assert done.reloading.next_due_ns() == done.clock.monotonic_ns() + 1_000_000
    done.clock.advance_ms(1)
    done.reloading.due()
    assert done.calls == [1, "reload: worker 1 does not answer", 2]
    done.reloading.worker_reloaded(1, ["late"], [])
    done.reloading.worker_reloaded(2, ["applied"], [])
    assert done.calls[3:] == ["applied", "end"]
    assert done.reloading.next_due_ns() is None
