use std::fmt;

use crate::agent;

/// Why a call had no effect. None of them is a reason to end the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A name with a control character, or a variable of the environment that makes no sense.
    BadName,
    /// The dump signal has a handler of the program's: choose another by STACKD_SIGNAL.
    SignalTaken,
    /// No daemon serves this process now.
    NotConnected,
    /// The dump goes on, but was not over in time.
    TimedOut,
    /// What the kernel said: an errno value.
    Os(i32),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadName => write!(formatter, "a name or a STACKD_ variable of the environment makes no sense"),
            Error::SignalTaken => write!(formatter, "the dump signal has a handler already; STACKD_SIGNAL chooses another"),
            Error::NotConnected => write!(formatter, "no stackd daemon serves this process now"),
            Error::TimedOut => write!(formatter, "the dump was not over in time"),
            Error::Os(number) => std::io::Error::from_raw_os_error(*number).fmt(formatter),
        }
    }
}

impl std::error::Error for Error {}

/// 0 or a negative errno value, as the agent's functions return.
pub(crate) fn check(returned: i32) -> Result<(), Error> {
    match -returned {
        0 => Ok(()),
        agent::EINVAL => Err(Error::BadName),
        agent::EBUSY => Err(Error::SignalTaken),
        agent::ENOTCONN => Err(Error::NotConnected),
        agent::ETIMEDOUT => Err(Error::TimedOut),
        number => Err(Error::Os(number)),
    }
}
