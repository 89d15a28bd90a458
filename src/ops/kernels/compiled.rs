//! Registers and shared memory of a compiled kernel, from the tables of its ELF file.

use super::occupancy::{UNIT_SHARED, share};
use crate::ops::Cost;

/// `e_machine` of ELF files for NVIDIA.
const NVIDIA: u16 = 190;
/// `e_machine` of ELF files for AMD.
const AMD: u16 = 224;

/// Low byte of `e_flags` for gfx90a, gfx942 and gfx950, whose threads have 512 registers at most.
const AMD_PROCESSORS: [u8; 3] = [0x3f, 0x4c, 0x4f];

/// Attribute of `.nv.info` with a kernel's symbol and the number of its registers, and the format of such entries.
const REGISTERS: u8 = 0x2f;
const SIZED: u8 = 4;

/// Registers and shared memory that a compiled kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resources {
    /// Registers of a thread, of 32 bits each.
    pub registers: u32,
    /// Shared memory of a block in bytes that the code declares, with the part that the system reserves.
    pub shared: u32,
    /// True if the code is for AMD GPUs.
    amd: bool,
}

impl Resources {
    /// Reads the resources of a kernel; `None` if the code is not an ELF file of either vendor or lacks the kernel.
    pub fn of(code: &[u8], entry: &str) -> Option<Resources> {
        let elf = Elf::of(code)?;
        match elf.machine {
            NVIDIA => {
                let symbol = elf.symbols().position(|symbol| symbol.name == entry)? as u32;
                let registers = elf.section(".nv.info").and_then(|info| registers(elf.bytes(&info)?, symbol))?;
                let shared = elf.section(&format!(".nv.shared.{entry}")).map_or(0, |section| section.size);
                Some(Resources { registers, shared: u32::try_from(shared).ok()?, amd: false })
            }
            AMD if AMD_PROCESSORS.contains(&elf.flags) => {
                let descriptor = format!("{entry}.kd");
                let at = elf.symbols().find(|symbol| symbol.name == descriptor)?.address;
                let descriptor = elf.at_address(at, 64)?;
                // The lowest six bits of `compute_pgm_rsrc1` count groups of eight registers, less one.
                let registers = 8 * ((word(descriptor, 48)? & 63) + 1);
                Some(Resources { registers, shared: word(descriptor, 0)?, amd: true })
            }
            _ => None,
        }
    }

    /// Part of an SM that a block of this many threads occupies, with `dynamic` bytes of dynamic shared memory, in
    /// units of [`Cost::share`].
    pub fn share(&self, threads: u64, dynamic: u64) -> u32 {
        // Threads of a wave, allocation granularity of registers, waves that can start at once, and registers of an SM
        // or compute unit: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; CDNA 3 ISA
        // guide, "VGPR allocation".
        let (wave, group, waves, file) = if self.amd { (64, 512, 1, 1 << 17) } else { (32, 256, 4, 1 << 16) };
        let each = (u64::from(self.registers) * wave).next_multiple_of(group);
        let registers = threads.div_ceil(wave).next_multiple_of(waves) * each;
        share(threads).max(part(registers, file)).max(shared_part(u64::from(self.shared) + dynamic))
    }
}

/// The reason why a kernel has no machine code.
#[derive(Debug, thiserror::Error)]
pub enum NotCompiled {
    /// The machine has no compiler for the device; the reason in words.
    #[error("{0}")]
    NoCompiler(String),
    /// The compiler refuses the code: its log.
    #[error("{0}")]
    Refused(String),
}

/// Part of an SM's shared memory, in units of [`Cost::share`].
pub fn shared_part(bytes: u64) -> u32 {
    part(bytes, UNIT_SHARED)
}

fn part(taken: u64, whole: u64) -> u32 {
    let unit = u64::from(Cost::WHOLE_UNIT);
    (taken.saturating_mul(unit).div_ceil(whole)).min(unit) as u32
}

/// The number of registers of a kernel in `.nv.info`; `None` if it is not there.
fn registers(info: &[u8], symbol: u32) -> Option<u32> {
    let mut at = 0;
    while let Some(&[format, attribute, low, high]) = info.get(at..at + 4) {
        let size = usize::from(u16::from_le_bytes([low, high]));
        let sized = format == SIZED;
        if sized && attribute == REGISTERS && word(info, at + 4)? == symbol {
            return word(info, at + 8);
        }
        at += 4 + if sized { size } else { 0 };
    }
    None
}

/// Reads a little-endian 32-bit number at an offset; `None` beyond the end.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(word(bytes, at)?) | u64::from(word(bytes, at.checked_add(4)?)?) << 32)
}

/// A little-endian ELF file of 64-bit code.
struct Elf<'a> {
    bytes: &'a [u8],
    machine: u16,
    /// The lowest byte of the flags.
    flags: u8,
    sections: Vec<Section<'a>>,
}

#[derive(Clone, Copy)]
struct Section<'a> {
    name: &'a str,
    /// Address in the loaded program.
    address: u64,
    /// Offset in the file.
    offset: u64,
    size: u64,
    /// True if the section occupies no bytes of the file.
    empty: bool,
    /// Index of the section with the names of the symbols.
    link: u32,
}

struct Symbol<'a> {
    name: &'a str,
    address: u64,
}

impl<'a> Elf<'a> {
    fn of(bytes: &'a [u8]) -> Option<Elf<'a>> {
        if bytes.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let start = usize::try_from(long(bytes, 40)?).ok()?;
        let (entry, count, names) = (half(58)?, half(60)?, half(62)?);
        let header = |number: u16| {
            let at = start.checked_add(usize::from(number) * usize::from(entry))?;
            bytes.get(at..at.checked_add(64)?)
        };
        let named = header(names)?;
        let (names_at, names_size) = (long(named, 24)?, long(named, 32)?);
        let names = slice(bytes, names_at, names_size)?;
        let section = |number| {
            let header = header(number)?;
            Some(Section {
                name: text(names, word(header, 0)?)?,
                address: long(header, 16)?,
                offset: long(header, 24)?,
                size: long(header, 32)?,
                // SHT_NOBITS
                empty: word(header, 4)? == 8,
                link: word(header, 40)?,
            })
        };
        let sections = (0..count).map(section).collect::<Option<Vec<_>>>()?;
        Some(Elf { bytes, machine: half(18)?, flags: *bytes.get(48)?, sections })
    }

    fn section(&self, name: &str) -> Option<Section<'a>> {
        self.sections.iter().find(|section| section.name == name).copied()
    }

    fn bytes(&self, section: &Section) -> Option<&'a [u8]> {
        if section.empty { None } else { slice(self.bytes, section.offset, section.size) }
    }

    /// The bytes of the loaded program at an address; `None` if no section holds them.
    fn at_address(&self, address: u64, size: u64) -> Option<&'a [u8]> {
        let holds = |section: &&Section| {
            let offset = address.checked_sub(section.address);
            !section.empty && offset.is_some_and(|offset| offset.saturating_add(size) <= section.size)
        };
        // Sections without an address are not loaded.
        let section = self.sections.iter().filter(|section| section.address > 0).find(holds)?;
        slice(self.bytes, section.offset.checked_add(address - section.address)?, size)
    }

    /// Returns the symbols in order; none if the table is invalid.
    fn symbols(&self) -> impl Iterator<Item = Symbol<'a>> {
        let table = self.section(".symtab").or_else(|| self.section(".dynsym"));
        let names = table.and_then(|table| self.bytes(self.sections.get(table.link as usize)?));
        let entries = table.and_then(|table| self.bytes(&table)).unwrap_or_default();
        entries.chunks_exact(24).filter_map(move |entry| {
            let name = text(names?, word(entry, 0)?).unwrap_or_default();
            Some(Symbol { name, address: long(entry, 8)? })
        })
    }
}

fn slice(bytes: &[u8], start: u64, size: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(start).ok()?..usize::try_from(start.checked_add(size)?).ok()?)
}

/// The text at an offset, up to its NUL; `None` outside of the names or if it is not UTF-8.
fn text(names: &[u8], at: u32) -> Option<&str> {
    let rest = names.get(at as usize..)?;
    std::str::from_utf8(rest.split(|&byte| byte == 0).next()?).ok()
}
