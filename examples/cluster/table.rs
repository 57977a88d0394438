//! The table of the runs: their nodes and their results.

use crate::verdict::Evidence;
use allora::backend::Outcome;

/// A line for each job that had an occurrence, a column for each of so many machines.
pub(crate) fn print(evidence: &Evidence<'_>, machines: usize) {
    print!("\n{:<36}{:>9}", "job", "instants");
    (1..=machines).for_each(|machine| print!("  machine-{machine}"));
    println!("     ran   again    lost  missed");
    let mut quiet = 0;
    for chore in evidence.chores {
        let instants = chore.instants(evidence.span).count();
        if instants == 0 {
            quiet += 1;
            continue;
        }
        print!("{:<36}{instants:>9}", chore.name.chars().take(35).collect::<String>());
        let begun = evidence.lines.iter().filter(|line| line.began && line.job == chore.name);
        for machine in 1..=machines {
            let label = format!("machine-{machine}");
            print!("{:>11}", begun.clone().filter(|line| line.is_by(&label)).count());
        }
        let past = evidence.past.iter().filter(|past| past.name == chore.name);
        let count = |outcome: Outcome| -> u64 {
            past.clone().filter(|p| p.outcome == outcome).map(|p| p.count.unwrap_or(0)).sum()
        };
        let again = past.clone().filter(|past| past.attempt > 1).count();
        let (ran, lost, missed) =
            (count(Outcome::Succeeded), count(Outcome::Lost), count(Outcome::Missed));
        println!("{ran:>8}{again:>8}{lost:>8}{missed:>8}");
    }
    println!("{quiet} more jobs had no instant in this time");
}
