//! Reads a binlog with mysql_async in this process, every value of every row.
//!
//! The environment says what to read; see benchmarks/peers/outcome.py for it and for the line that is printed.

use std::env::var;
use std::time::Instant;

use futures_util::StreamExt;
use mysql_async::binlog::events::EventData;
use mysql_async::binlog::value::BinlogValue;
use mysql_async::{BinlogStreamRequest, Conn, OptsBuilder, Value};

type Failure = Box<dyn std::error::Error>;

/// An integer itself, the length of a text in bytes, 1 for another value, 0 for none.
fn read(column: usize, value: Option<&BinlogValue<'_>>) -> i64 {
    match value {
        None | Some(BinlogValue::Value(Value::NULL)) => 0,
        Some(_) if column == 2 || column == 4 => 1,
        Some(BinlogValue::Value(Value::Int(number))) => *number,
        Some(BinlogValue::Value(Value::UInt(number))) => *number as i64,
        Some(BinlogValue::Value(Value::Bytes(bytes))) => bytes.len() as i64,
        Some(other) => panic!("column {column} holds {other:?}"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let wanted: i64 = var("PEER_ROWS")?.parse()?;
    let options = OptsBuilder::default()
        .ip_or_hostname(var("PEER_HOST")?)
        .tcp_port(var("PEER_PORT")?.parse()?)
        .user(Some(var("PEER_USER")?))
        .pass(Some(var("PEER_PASSWORD")?))
        .prefer_socket(false);
    let connection = Conn::new(options).await?;
    let file = var("PEER_FILE")?;
    let request = BinlogStreamRequest::new((1 << 30) + std::process::id())
        .with_filename(file.as_bytes())
        .with_pos(4);
    let mut stream = connection.get_binlog_stream(request).await?;
    let (mut rows, mut checksum, mut first) = (0i64, 0i64, Instant::now());
    while rows < wanted {
        let event = stream.next().await.ok_or("the server ended the stream")??;
        if let Some(EventData::RowsEvent(data)) = event.read_data()? {
            let table = stream.get_tme(data.table_id()).ok_or("rows without their table")?;
            for row in data.rows(table) {
                let (_, after) = row?;
                let after = after.ok_or("a row without values")?;
                if rows == 0 {
                    first = Instant::now();
                }
                rows += 1;
                checksum += (0..after.len()).map(|column| read(column, after.as_ref(column))).sum::<i64>();
            }
        }
    }
    let seconds = first.elapsed().as_secs_f64();
    println!("{{\"rows\": {rows}, \"seconds\": {seconds}, \"checksum\": {checksum}}}");
    Ok(())
}
