//! The table: made where it is missing, checked where it is there.
//!
//! Any number of nodes may start at once: whoever loses a race to create, to switch cleaning on or
//! to mark the format finds that it was done. A table that someone else made, as an operator who
//! does not let a service create tables, is taken if its keys are right.

use std::time::Duration;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TableDescription, TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};

use super::client::Table;
use super::failure::{Failure, Kind};
use super::item::{CLEANUP, CLUSTERING, Item, PARTITION, binary, integer, number};
use crate::OpenError;

/// The version of the layout. A program opens tables of this version and no other.
const FORMAT: u64 = 1;

/// Where the version is written: no clustering is stored with this range key.
const MARK_PARTITION: &[u8] = b"wane";
const MARK_CLUSTERING: &[u8] = b"\0\x01format";
const MARK: &str = "format";

/// How often a table that is being made is looked at, and how many times.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 240;

impl Table {
    /// Makes sure of the table: that it is there, active, ours, and cleaned up.
    pub(super) async fn make_ready(&self) -> Result<(), OpenError> {
        if self.describe().await?.is_none() {
            self.create().await?;
        }
        self.wait_until_active().await?;
        self.switch_cleaning_on().await?;
        self.check_format().await
    }

    async fn describe(&self) -> Result<Option<TableDescription>, OpenError> {
        let described = self.client.describe_table().table_name(&self.name).send().await;
        match described {
            Ok(described) => Ok(described.table),
            Err(error) if is(&error, "ResourceNotFoundException") => Ok(None),
            Err(error) => Err(self.not_open(Failure::of(&error))),
        }
    }

    async fn create(&self) -> Result<(), OpenError> {
        let mut creating = self.client.create_table().table_name(&self.name);
        for (name, role) in [(PARTITION, KeyType::Hash), (CLUSTERING, KeyType::Range)] {
            creating = creating
                .key_schema(key_element(name, role))
                .attribute_definitions(binary_attribute(name));
        }
        match creating.billing_mode(BillingMode::PayPerRequest).send().await {
            Ok(_) => {
                tracing::info!(table = self.name, "created");
                Ok(())
            }
            // Another node was faster.
            Err(error) if is(&error, "ResourceInUseException") => Ok(()),
            Err(error) => Err(self.not_open(Failure::of(&error))),
        }
    }

    async fn wait_until_active(&self) -> Result<(), OpenError> {
        for _ in 0..LOOKS {
            // Shortly after its creation a table may not be found yet.
            if let Some(table) = self.describe().await? {
                self.check_keys(&table)?;
                match table.table_status() {
                    Some(TableStatus::Active | TableStatus::Updating) => return Ok(()),
                    None | Some(TableStatus::Creating) => {}
                    Some(status) => {
                        return Err(self.refused(format!("the table is {}", status.as_str())));
                    }
                }
            }
            self.clock.sleep(LOOK).await;
        }
        Err(self.refused("the table did not become active in two minutes".to_owned()))
    }

    fn check_keys(&self, table: &TableDescription) -> Result<(), OpenError> {
        let keys: Vec<_> = table
            .key_schema()
            .iter()
            .map(|key| (key.attribute_name(), key.key_type().clone()))
            .collect();
        let right = [(PARTITION, KeyType::Hash), (CLUSTERING, KeyType::Range)];
        let is_binary = |name| {
            let mut attributes = table.attribute_definitions().iter();
            attributes.any(|attribute| {
                attribute.attribute_name() == name
                    && *attribute.attribute_type() == ScalarAttributeType::B
            })
        };
        if keys == right && is_binary(PARTITION) && is_binary(CLUSTERING) {
            return Ok(());
        }
        let found: Vec<_> =
            keys.iter().map(|(name, role)| format!("{name} {}", role.as_str())).collect();
        Err(self.mismatch(format!(
            "its key is {}, not p HASH and c RANGE, both binary; name another table",
            found.join(" and ")
        )))
    }

    async fn switch_cleaning_on(&self) -> Result<(), OpenError> {
        if self.is_cleaned().await? {
            return Ok(());
        }
        let cleaning = TimeToLiveSpecification::builder().enabled(true).attribute_name(CLEANUP);
        let cleaning = cleaning.build().map_err(|error| self.refused(error.to_string()))?;
        let asked = self.client.update_time_to_live().table_name(&self.name);
        let switched = asked.time_to_live_specification(cleaning).send().await;
        match switched {
            Ok(_) => Ok(()),
            // Another node was faster, or it really was refused.
            Err(error) => {
                let failure = Failure::of(&error);
                if self.is_cleaned().await? { Ok(()) } else { Err(self.not_open(failure)) }
            }
        }
    }

    /// Whether DynamoDB removes what has expired.
    async fn is_cleaned(&self) -> Result<bool, OpenError> {
        let described = self.client.describe_time_to_live().table_name(&self.name).send().await;
        let described = described.map_err(|error| self.not_open(Failure::of(&error)))?;
        let Some(cleaning) = described.time_to_live_description else { return Ok(false) };
        let on = matches!(
            cleaning.time_to_live_status,
            Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
        );
        match cleaning.attribute_name.as_deref() {
            Some(CLEANUP) | None => Ok(on),
            Some(other) if on => {
                Err(self.mismatch(format!("its time to live is by {other:?}, not by \"ttl\"")))
            }
            Some(_) => Ok(false),
        }
    }

    async fn check_format(&self) -> Result<(), OpenError> {
        let mark = mark();
        let found = self.client.get_item().table_name(&self.name).consistent_read(true);
        let found = found.set_key(Some(mark.clone())).send().await;
        let found = found.map_err(|error| self.not_open(Failure::of(&error)))?;
        match found.item.map(|item| integer(&item, MARK)) {
            Some(Some(FORMAT)) => Ok(()),
            Some(Some(other)) => Err(self.mismatch(format!(
                "it has format {other}, this program knows format {FORMAT}; use the program that \
                 made it"
            ))),
            Some(None) => Err(self.mismatch("the mark of its format cannot be read")),
            None => self.mark_format(mark).await,
        }
    }

    async fn mark_format(&self, mut mark: Item) -> Result<(), OpenError> {
        mark.insert(MARK.to_owned(), number(FORMAT));
        let marked = self.client.put_item().table_name(&self.name).set_item(Some(mark));
        let marked = marked.condition_expression("attribute_not_exists(p)").send().await;
        match marked {
            // A node that starts at the same time was first, and may be of another version.
            Err(error) if is(&error, "ConditionalCheckFailedException") => {
                Box::pin(self.check_format()).await
            }
            marked => marked.map(drop).map_err(|error| self.not_open(Failure::of(&error))),
        }
    }

    fn refused(&self, reason: String) -> OpenError {
        self.not_open(Failure { kind: Kind::Rejected, reason })
    }
}

/// The key of the item that holds the version of the layout. It is in every table that was opened.
pub(super) fn mark() -> Item {
    Item::from([
        (PARTITION.to_owned(), binary(MARK_PARTITION)),
        (CLUSTERING.to_owned(), binary(MARK_CLUSTERING)),
    ])
}

fn is<E: ProvideErrorMetadata>(error: &SdkError<E>, code: &str) -> bool {
    error.code() == Some(code)
}

fn key_element(name: &str, role: KeyType) -> KeySchemaElement {
    let element = KeySchemaElement::builder().attribute_name(name).key_type(role);
    element.build().expect("name and role are given")
}

fn binary_attribute(name: &str) -> AttributeDefinition {
    let attribute =
        AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::B);
    attribute.build().expect("name and type are given")
}
