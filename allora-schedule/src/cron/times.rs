//! Times of day, one bit per hour, minute and second.

/// The times at which each of the three matches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Bits 0 to 23; never empty, nor are the others.
    pub(crate) hours: u32,
    /// Bits 0 to 59.
    pub(crate) minutes: u64,
    /// Bits 0 to 59.
    pub(crate) seconds: u64,
}

impl Times {
    /// The first one, in seconds of the day.
    pub(crate) fn first(self) -> u32 {
        self.hours.trailing_zeros() * 3600
            + self.minutes.trailing_zeros() * 60
            + self.seconds.trailing_zeros()
    }

    /// The first one not before a second of the day.
    pub(crate) fn from(self, second: u32) -> Option<u32> {
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        if self.hours >> hour & 1 != 0 {
            if self.minutes >> minute & 1 != 0 {
                let later = self.seconds >> second;
                if later != 0 {
                    return Some(hour * 3600 + minute * 60 + second + later.trailing_zeros());
                }
            }
            let later = self.minutes >> minute >> 1;
            if later != 0 {
                let minute = minute + 1 + later.trailing_zeros();
                return Some(hour * 3600 + minute * 60 + self.seconds.trailing_zeros());
            }
        }
        let later = self.hours >> hour >> 1;
        (later != 0).then(|| {
            let hour = hour + 1 + later.trailing_zeros();
            hour * 3600 + self.minutes.trailing_zeros() * 60 + self.seconds.trailing_zeros()
        })
    }

    /// The number of them.
    pub(crate) fn count(self) -> usize {
        (self.hours.count_ones() * self.minutes.count_ones() * self.seconds.count_ones()) as usize
    }

    /// The one with this index, below the [count](Self::count).
    pub(crate) fn nth(self, index: usize) -> u32 {
        let (minutes, seconds) = (self.minutes.count_ones(), self.seconds.count_ones());
        let index = index as u32;
        let hour = nth_bit(self.hours.into(), index / seconds / minutes);
        let minute = nth_bit(self.minutes, index / seconds % minutes);
        hour * 3600 + minute * 60 + nth_bit(self.seconds, index % seconds)
    }
}

/// The place of the set bit with this index, counted from the lowest.
pub(crate) fn nth_bit(mut bits: u64, index: u32) -> u32 {
    for _ in 0..index {
        bits &= bits.wrapping_sub(1);
    }
    bits.trailing_zeros()
}
