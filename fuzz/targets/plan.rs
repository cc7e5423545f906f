//! A plan file: an accepted one is the same after writing and reading again.

#![no_main]

use std::sync::LazyLock;

use replimeter_instruments::{
    backlog::settings::BacklogSettings, calibrate::settings::CalibrateSettings,
    cost::settings::CostSettings, exposure::settings::ExposureSettings, lag::settings::LagSettings,
    load::settings::LoadSettings, loss::settings::LossSettings, scale::settings::ScaleSettings,
    stale::settings::StaleSettings, tap::settings::TapSettings,
};
use replimeter_model::plan::{PlanError, PlanFile, Section, Settings, command};

type Check = fn(&str) -> Result<(), PlanError>;

static MEASUREMENTS: LazyLock<(Vec<Section>, Vec<Check>)> = LazyLock::new(|| {
    [
        of::<BacklogSettings>(),
        of::<CalibrateSettings>(),
        of::<CostSettings>(),
        of::<ExposureSettings>(),
        of::<LagSettings>(),
        of::<LoadSettings>(),
        of::<LossSettings>(),
        of::<ScaleSettings>(),
        of::<StaleSettings>(),
        of::<TapSettings>(),
    ]
    .into_iter()
    .unzip()
});

fn of<S: Settings>() -> (Section, Check) {
    (Section::of::<S>(), check::<S>)
}

fn check<S: Settings>(text: &str) -> Result<(), PlanError> {
    let planned = PlanFile::<S>::from_toml(text, &MEASUREMENTS.0)?.plan_of(text)?;
    let written = planned.to_toml().expect("texts of TOML are UTF-8");
    let again = PlanFile::<S>::from_toml(&written, &MEASUREMENTS.0)
        .and_then(|file| file.plan_of(&written))
        .expect("a written plan is valid");
    assert_eq!(again.to_toml().expect("the same texts"), written);
    Ok(())
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let (sections, checks) = &*MEASUREMENTS;
    let checked = command(&text, sections).and_then(|name| {
        let at = sections.iter().position(|section| section.name == name);
        checks[at.expect("the command is a section")](&text)
    });
    if let Err(error) = checked {
        let _ = error.to_string();
    }
});
