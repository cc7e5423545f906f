//! The figures of `exposure`.

use replimeter_model::exposure::ExposureDocument;
use replimeter_run::figures;
use replimeter_run::{
    cli_error::CliError,
    compare::figures::{DimensionSpec, Figures, SHAPE, SampleFile},
};
use replimeter_stats::compare::SampleSeries;

const OF: &[DimensionSpec] = &[SHAPE];

figures! {
    // Any of them can be 0.
    TRANSACTIONS = "exposure.transactions" [mean p99 max]: Count, Lower, Difference, of OF;
    BYTES = "exposure.bytes" [mean p99 max]: Bytes, Lower, Difference, of OF;
    AGE = "exposure.age" [mean p50 p99 max]: Us, Lower, Difference, of OF;
    PERCENT = "exposure.percent": Percent, Lower, Difference, of OF;
}

pub(super) fn figures(
    document: &ExposureDocument,
    samples: &SampleFile,
) -> Result<Figures, CliError> {
    let mut shape = String::new();
    let (mut transactions, mut bytes, mut ages) = (Vec::new(), Vec::new(), Vec::new());
    if document.results.rows.iter().any(|row| row.polls > 0) {
        let names = ["shape", "transactions", "bytes", "age_us"];
        samples.read(&names, |columns, rows| {
            for row in 0..rows {
                if shape.is_empty() {
                    columns[0].word(row).clone_into(&mut shape);
                }
                transactions.push(columns[1].number(row));
                bytes.push(columns[2].number(row));
                // If nothing is exposed, the age is 0, as in the record.
                let age = columns[3].number(row);
                ages.push(if age.is_nan() { 0.0 } else { age });
            }
        })?;
    }
    let exposed = transactions
        .iter()
        .map(|number| if *number > 0.0 { 100.0 } else { 0.0 });
    let exposed = SampleSeries::new(exposed).mean();
    let of = [shape.as_str()];
    let mut figures = Figures::default();
    figures.course(TRANSACTIONS, &of, &SampleSeries::new(transactions));
    figures.course(BYTES, &of, &SampleSeries::new(bytes));
    figures.course(AGE, &of, &SampleSeries::new(ages));
    figures.add(&PERCENT, &of, exposed);
    Ok(figures)
}
