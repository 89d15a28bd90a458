//! The two blocks of a file that run once, around the iterations.

use serde::{Deserialize, Serialize};

use super::named::named;

/// A value for each of the two blocks; `None` for a block that the file does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Around<T> {
    /// The block that runs before the first iteration, on the initial contents; `None` without one.
    pub setup: Option<T>,
    /// The block that runs after the last iteration; `None` without one.
    pub teardown: Option<T>,
}

named! {
    /// A block of statements that runs once: `setup` before the first iteration, `teardown` after the last.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum OnceBlock {
        Setup = "setup",
        Teardown = "teardown",
    }
}

impl<T> Default for Around<T> {
    fn default() -> Self {
        Around { setup: None, teardown: None }
    }
}

impl<T> Around<T> {
    /// Returns the value of a block; `None` if the file has no such block.
    pub fn get(&self, block: OnceBlock) -> Option<&T> {
        match block {
            OnceBlock::Setup => self.setup.as_ref(),
            OnceBlock::Teardown => self.teardown.as_ref(),
        }
    }

    /// The value of a block.
    pub fn get_mut(&mut self, block: OnceBlock) -> &mut Option<T> {
        match block {
            OnceBlock::Setup => &mut self.setup,
            OnceBlock::Teardown => &mut self.teardown,
        }
    }

    /// The blocks that the file has, in the order of execution.
    pub fn iter(&self) -> impl Iterator<Item = (OnceBlock, &T)> {
        OnceBlock::ALL.into_iter().filter_map(|block| Some((block, self.get(block)?)))
    }

    /// Applies `change` to the value of each block.
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> Around<U> {
        Around { setup: self.setup.map(&mut change), teardown: self.teardown.map(change) }
    }

    /// Changes each part as [`Around::map`] does, up to the first failure.
    ///
    /// # Errors
    /// The first error that `change` returns.
    pub fn try_map<U, E>(self, mut change: impl FnMut(T) -> Result<U, E>) -> Result<Around<U>, E> {
        let setup = self.setup.map(&mut change).transpose()?;
        Ok(Around { setup, teardown: self.teardown.map(change).transpose()? })
    }

    /// References to the values of both blocks.
    pub fn as_ref(&self) -> Around<&T> {
        Around { setup: self.setup.as_ref(), teardown: self.teardown.as_ref() }
    }

    /// Mutable references to the values of both blocks.
    pub fn as_mut(&mut self) -> Around<&mut T> {
        Around { setup: self.setup.as_mut(), teardown: self.teardown.as_mut() }
    }

    /// Pairs the values of two sets; `None` for a block that either set lacks.
    pub fn zip<U>(self, other: Around<U>) -> Around<(T, U)> {
        Around { setup: self.setup.zip(other.setup), teardown: self.teardown.zip(other.teardown) }
    }
}
