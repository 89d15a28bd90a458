//! Partitions of a sweep or a suite, each run on a machine of its own, and their files of cases as one.

use std::fmt;
use std::str::FromStr;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use super::{Cases, CasesHeader};

/// Largest number of partitions.
const MAX_PARTITIONS: u32 = 4096;

/// A part of the `count` parts into which the cases of a sweep or a suite are divided, so that several machines can run them:
/// `2/8` is the second of eight. Each case belongs to one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Number of this part, from 1 to `count`.
    pub index: u32,
    /// The number of partitions.
    pub count: u32,
}

impl Partition {
    /// True if the partition has the case with this number, counted from 0 in the order of the table. Neighbours belong
    /// to different partitions, so that all of them take about as long.
    pub fn has(self, case: usize) -> bool {
        case % self.count as usize + 1 == self.index as usize
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Partition, String> {
        let numbers = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match numbers {
            Some((index, count)) if (1..=count).contains(&index) && count <= MAX_PARTITIONS => {
                Ok(Partition { index, count })
            }
            _ => Err(format!(
                "it is the number of a partition and of all, from `1/N` to `N/N`, N at most {MAX_PARTITIONS}"
            )),
        }
    }
}

impl Cases {
    /// Merges the files of all partitions of one sweep or suite; each file has its name. The cases of the result are in
    /// the order of the unpartitioned sweep.
    ///
    /// # Errors
    ///
    /// Names the first file that belongs to something else, and what differs.
    pub fn merge(files: Vec<(String, Cases)>) -> Result<Cases, String> {
        let mut files = files.into_iter();
        let (first, mut all) = files.next().ok_or("there is no file")?;
        for (name, file) in files {
            // Each file is another part, but all have the same number of parts.
            let index = all.header.partition.map_or(0, |partition| partition.index);
            let partition = file.header.partition.map(|partition| Partition { index, ..partition });
            let header = CasesHeader { partition, ..file.header };
            if let Some((what, own, other)) = all.header.differences(&header).first() {
                return Err(format!("in {first}, {what} is `{own}`, and in {name} it is `{other}`"));
            }
            if all.header.cases != header.cases {
                return Err(format!("{name} and {first} are parts of other cases"));
            }
            all.cases.extend(file.cases);
            all.torn |= file.torn;
        }
        let order = |name: &String| all.header.cases.iter().position(|planned| planned == name);
        // A stable sort, so that the last of several runs of a case stays the last.
        all.cases.sort_by_cached_key(|case| order(&case.name).unwrap_or(usize::MAX));
        Ok(all)
    }

    /// Names of the planned cases that the files lack, in the order of the whole. Empty for a file that is no partition.
    pub fn missing(&self) -> Vec<&str> {
        let known: FxHashSet<&str> = self.cases.iter().map(|case| case.name.as_str()).collect();
        self.header.cases.iter().map(String::as_str).filter(|name| !known.contains(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_in_one_partition() {
        for count in 1..7 {
            for case in 0..40 {
                let has = |index: &u32| Partition { index: *index, count }.has(case);
                assert_eq!((1..=count).filter(has).count(), 1, "{case} of {count}");
            }
        }
        assert_eq!("2/8".parse(), Ok(Partition { index: 2, count: 8 }));
        for wrong in ["", "2", "0/2", "3/2", "-1/2", "1/0", "1/99999", "a/b", "1/2/3"] {
            assert!(wrong.parse::<Partition>().is_err(), "{wrong}");
        }
    }
}
