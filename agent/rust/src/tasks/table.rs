//! What the daemon is told of tasks: stackd_task_table in stackd/wire.h.
use super::task::Task;
use super::trace::Stacks;

const VERSION: u32 = 1;
const RUST: u32 = 2;
const RUNTIME_BYTES: usize = 32;
/// The daemon shows no more, and types of futures can have kilobytes.
const MAX_TEXT_BYTES: usize = 400;
/// Room for what follows a record's head is found out when all is written.
const RECORD_BYTES: usize = 32;

/// Numbers as in stackd_task_state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Waits = 1,
    Runs = 2,
    IsDue = 3,
    NeverRan = 4,
    NotAsked = 5,
}

pub struct Table {
    bytes: Vec<u8>,
}

impl Table {
    pub fn new(there_are: usize) -> Table {
        let mut bytes = Vec::with_capacity(4096);
        bytes.extend(VERSION.to_ne_bytes());
        bytes.extend(RUST.to_ne_bytes());
        bytes.extend((there_are as u64).to_ne_bytes());
        let mut runtime = [0; RUNTIME_BYTES];
        runtime[..5].copy_from_slice(b"tokio");
        bytes.extend(runtime);
        Table { bytes }
    }

    pub fn add(&mut self, task: &Task, state: State, thread: i32, stacks: &Stacks) {
        let name = cut(task.name);
        let place = format!("{}:{}", task.place.file(), task.place.line());
        let place = cut(&place);
        let size = (RECORD_BYTES + stacks.words.len() * 8 + name.len() + place.len() + 7) / 8 * 8;
        let end = self.bytes.len() + size;
        self.bytes.reserve(size);
        self.bytes.extend((size as u32).to_ne_bytes());
        self.bytes.extend((state as u32).to_ne_bytes());
        self.bytes.extend(task.id().to_ne_bytes());
        self.bytes.extend(thread.to_ne_bytes());
        for length in [stacks.words.len(), name.len(), place.len()] {
            self.bytes.extend((length as u32).to_ne_bytes());
        }
        for word in &stacks.words {
            self.bytes.extend(word.to_ne_bytes());
        }
        self.bytes.extend(name);
        self.bytes.extend(place);
        self.bytes.resize(end, 0);
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The daemon makes valid text of half a character.
fn cut(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(MAX_TEXT_BYTES)]
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;

    fn number(bytes: &[u8], at: usize) -> u64 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()).into()
    }

    #[test]
    fn a_record_has_what_the_header_says() {
        let mut stacks = Stacks::default();
        stacks.words.extend([0x10, 0x20, 0]);
        let task = Task::new("app::serve", Location::caller());
        let mut table = Table::new(9);
        let begin = table.len();
        assert_eq!(begin, 48);
        table.add(&task, State::Runs, 41, &stacks);
        table.add(&task, State::Waits, 0, &Stacks::default());
        let bytes = table.into_bytes();
        let size = number(&bytes, begin) as usize;
        assert_eq!(size % 8, 0);
        assert_eq!((number(&bytes, begin + 4), number(&bytes, begin + 16), number(&bytes, begin + 20)), (2, 41, 3));
        assert_eq!(number(&bytes, begin + 32), 0x10);
        assert_eq!(&bytes[begin + 32 + 24..begin + 32 + 24 + 10], b"app::serve");
        let place_bytes = number(&bytes, begin + 28) as usize;
        let place = &bytes[begin + 32 + 24 + 10..][..place_bytes];
        assert!(std::str::from_utf8(place).unwrap().contains("table.rs:"));
        assert_eq!(number(&bytes, begin + size + 4), 1);
        assert_eq!(begin + size + number(&bytes, begin + size) as usize, bytes.len());
    }

    #[test]
    fn long_names_are_cut() {
        let name: &'static str = Box::leak("ß".repeat(1000).into_boxed_str());
        let mut table = Table::new(1);
        table.add(&Task::new(name, Location::caller()), State::Waits, 0, &Stacks::default());
        assert!(table.len() < 48 + 32 + 400 + 200);
    }
}
