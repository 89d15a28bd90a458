//! The flags by which a rank meets others: words in its device's memory, in the host's, or in memory of the host that
//! other processes see too.

use std::io;
use std::sync::atomic::Ordering;

use crate::backend::shared::SharedMemory;
use crate::exec::{ExecError, Image};

use super::api::{Api, Call};
use super::runtime::Stream;

/// Bytes of a flag.
pub const FLAG: u64 = 4;

/// The flags of a rank.
#[derive(Debug, Default)]
pub struct Flags {
    /// In the device's memory, where streams raise and await flags by themselves; else there are none.
    device: u64,
    /// In the host's, where all devices see them change, as the device has their address.
    host: u64,
    /// The host's memory, where other processes see it.
    shared: Option<SharedMemory>,
}

fn bytes(image: &Image, ranks: usize) -> u64 {
    u64::from(image.crossings) * (1 + ranks as u64) * FLAG
}

impl Flags {
    /// Makes the flags of an image, all lowered; none where nothing is copied to other ranks.
    pub fn new<A: Api>(api: &A, image: &Image, ranks: usize, stream: Stream) -> Call<Flags> {
        if image.crossings == 0 {
            return Ok(Flags::default());
        }
        let bytes = bytes(image, ranks);
        let mut flags = Flags { device: 0, host: api.allocate_pinned(bytes)?, shared: None };
        // SAFETY: the memory was made for this, with that many bytes, and nothing uses it yet.
        unsafe { std::ptr::write_bytes(flags.host as *mut u8, 0, bytes as usize) };
        if A::STEPS_ON_STREAMS {
            flags.device = api.allocate(bytes)?;
            // SAFETY: as above.
            unsafe { api.memset(flags.device, 0, bytes, stream)? };
        }
        api.synchronize()?;
        Ok(flags)
    }

    /// The same, where each rank has a process of its own.
    pub fn of_process<A: Api>(api: &A, image: &Image, ranks: usize) -> Result<Flags, ExecError> {
        if image.crossings == 0 {
            return Ok(Flags::default());
        }
        // Behind the flags stands a word for each rank, which that one sets when it has closed what it opened.
        let shared = SharedMemory::create(bytes(image, ranks) + ranks as u64 * FLAG);
        let shared = shared.map_err(|error| no_memory(&error))?;
        let host = registered(api, &shared)?;
        Ok(Flags { device: 0, host, shared: Some(shared) })
    }

    /// The name by which other processes find them; `None` where there are none.
    pub fn name(&self) -> Option<String> {
        self.shared.as_ref().and_then(SharedMemory::name)
    }

    /// Opens those of another process's rank, under the name that it says. All ranks have as many flags.
    pub fn open_other(&self, name: Option<&str>) -> io::Result<SharedMemory> {
        let bytes = self.shared.as_ref().map_or(0, SharedMemory::bytes);
        SharedMemory::open(name.unwrap_or_default(), bytes)
    }

    /// Whether that rank has closed what it had opened of this one.
    pub fn closed(&self, rank: u32) -> bool {
        let word = self.shared.as_ref().and_then(|shared| shared.word_from_end(rank as usize));
        word.is_none_or(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Every process has found them.
    pub fn hide(&mut self) {
        self.shared.iter_mut().for_each(SharedMemory::hide);
    }

    /// Where the flags begin for ranks whose devices this one reaches, and for the others. A kernel that waits on one
    /// device need not see what another writes into its memory meanwhile: it looks at the host's.
    pub fn begin(&self) -> [u64; 2] {
        [if self.device != 0 { self.device } else { self.host }, self.host]
    }

    /// Gives their memory back.
    ///
    /// # Safety
    /// Nothing uses the flags any more, on this device or on others.
    pub unsafe fn free<A: Api>(&mut self, api: &A) {
        // SAFETY: all were made by `new` or `of_process`; the caller says that nothing uses them.
        unsafe {
            if self.device != 0 {
                api.free(self.device);
            }
            match self.shared.take() {
                Some(shared) => api.unregister(shared.address()),
                None if self.host != 0 => api.free_pinned(self.host),
                None => {}
            }
        }
    }
}

/// Where the device finds memory that processes share.
pub fn registered<A: Api>(api: &A, shared: &SharedMemory) -> Result<u64, ExecError> {
    // SAFETY: the memory is mapped whole, and stays so until it is given back.
    let registered = unsafe { api.register(shared.address(), shared.bytes()) };
    registered.map_err(|fault| ExecError::Device { fault: fault.to_string(), help: None })
}

/// The error of memory that cannot be shared.
pub fn no_memory(error: &io::Error) -> ExecError {
    ExecError::Device {
        fault: format!("copies between processes need memory of the host that both see: {error}"),
        help: Some("run all ranks in one process: `--ranks N` without a launcher".to_owned()),
    }
}
