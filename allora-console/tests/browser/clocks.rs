//! The days on which the clocks change.

use crate::{Browser, LOOKS, Served};
use allora::{Memory, Schedules, StoredSchedule, runtime::Sim};
use allora_console::{Access, Console};

/// The place of a text in the plot, or of the first line that is drawn like this.
const PLACES: &str = "
    const plot = document.querySelector('svg.timeline');
    const midnights = [...plot.querySelectorAll('text')].filter((text) => text.textContent === '00:00');
    const change = plot.querySelector('line.dst');
    const left = (element) => element.getBoundingClientRect().x + element.getBoundingClientRect().width / 2;
    return [...midnights, change].map(left).concat(plot.getBoundingClientRect().width / 1232);";

#[test]
fn the_timeline_marks_the_change_and_the_day_is_shorter_or_longer() {
    for (now, zone, text, hours) in [
        ("2026-03-29T10:00:00Z", "Europe/Rome", "clocks forward 60 min", 23.0),
        ("2026-10-25T11:00:00Z", "Europe/Rome", "clocks back 60 min", 25.0),
        ("2026-10-04T01:00:00Z", "Australia/Lord_Howe", "clocks forward 30 min", 23.5),
        ("2026-04-05T01:00:00Z", "Australia/Lord_Howe", "clocks back 30 min", 24.5),
    ] {
        let sim = Sim::starting_at(1, now.parse().unwrap());
        let schedules = Schedules::on(Memory::new(), sim.node()).unwrap();
        let job = StoredSchedule::new("report", "report", format!("@hourly {zone}"));
        sim.block_on(schedules.add(&job)).unwrap();
        let console = Console::new(schedules).access(|_| Some(Access::reader("ann")));
        let served = Served::new(console.into_router());
        let browser = Browser::start();
        browser.look(LOOKS[0]);
        browser.open(&served.page(&format!("/?zone={zone}")));
        let said = browser.text("return document.querySelector('svg.timeline').textContent");
        assert!(said.contains(&format!("{text}, {zone}")), "{said}");
        let places = browser.eval(PLACES);
        let place = |i: usize| places[i].as_f64().unwrap_or_else(|| panic!("{zone}: {places}"));
        let hour = (1232.0 - 190.0) / 48.0 * place(3);
        assert!(((place(1) - place(0)) / hour - hours).abs() < 0.1, "{zone}: {places}");
        assert!(place(0) < place(2) && place(2) < place(1), "{zone}: {places}");
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}
