//! All tasks that are there, in an order that says nothing.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::task::Task;

/// So that threads that spawn at the same time seldom wait for each other.
const SHARDS: usize = 16;

struct Shard {
    slots: Vec<Option<Arc<Task>>>,
    free: Vec<usize>,
}

#[allow(clippy::declare_interior_mutable_const)]
const EMPTY: Mutex<Shard> = Mutex::new(Shard { slots: Vec::new(), free: Vec::new() });
static ALL: [Mutex<Shard>; SHARDS] = [EMPTY; SHARDS];
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

fn lock(shard: usize) -> MutexGuard<'static, Shard> {
    ALL[shard].lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task is in the list until this is dropped.
#[derive(Debug)]
pub struct Entry {
    task: Arc<Task>,
    shard: usize,
    slot: usize,
}

pub fn enter(task: Arc<Task>) -> Entry {
    let number = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS;
    let mut shard = lock(number);
    let slot = shard.free.pop().unwrap_or_else(|| {
        shard.slots.push(None);
        shard.slots.len() - 1
    });
    shard.slots[slot] = Some(Arc::clone(&task));
    Entry { task, shard: number, slot }
}

impl Entry {
    pub fn task(&self) -> &Arc<Task> {
        &self.task
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut shard = lock(self.shard);
        let listed = shard.slots[self.slot].take();
        shard.free.push(self.slot);
        let is_empty = shard.free.len() == shard.slots.len();
        if is_empty {
            // A burst of tasks leaves nothing behind.
            *shard = Shard { slots: Vec::new(), free: Vec::new() };
        }
        drop(shard);
        drop(listed);
        self.task.end();
    }
}

/// At most `limit` tasks, and how many there are.
pub fn list(limit: usize) -> (Vec<Arc<Task>>, usize) {
    let mut tasks = Vec::new();
    let mut there_are = 0;
    for number in 0..SHARDS {
        let shard = lock(number);
        there_are += shard.slots.len() - shard.free.len();
        let room = limit - tasks.len();
        tasks.extend(shard.slots.iter().flatten().take(room).cloned());
    }
    (tasks, there_are)
}

/// Turn of a test that has tasks in the list: each asks, and holds for a moment, those of the others too.
#[cfg(test)]
pub fn turn() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;

    #[test]
    fn tasks_are_in_the_list_until_they_are_dropped() {
        let _turn = turn();
        let name = "of this test alone";
        let of_this_test = || list(usize::MAX).0.iter().filter(|task| task.name == name).count();
        let entries: Vec<Entry> = (0..100).map(|_| enter(Arc::new(Task::new(name, Location::caller())))).collect();
        assert_eq!(of_this_test(), 100);
        let kept = Arc::clone(entries[0].task());
        drop(entries);
        assert_eq!(of_this_test(), 0);
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    #[test]
    fn a_list_is_as_long_as_it_may_be() {
        let _turn = turn();
        let _entries: Vec<Entry> = (0..50).map(|_| enter(Arc::new(Task::new("one", Location::caller())))).collect();
        let (tasks, there_are) = list(7);
        assert_eq!(tasks.len(), 7);
        assert!(there_are >= 50);
    }
}
