#!/bin/sh
# Creates the schema of Temporal's databases, or updates it to the version of this image. Each step is idempotent.
set -eu

temporal-sql-tool --database temporal setup-schema --version 0.0
temporal-sql-tool --database temporal update-schema --schema-name postgresql/v12/temporal
temporal-sql-tool --database temporal_visibility setup-schema --version 0.0
temporal-sql-tool --database temporal_visibility update-schema --schema-name postgresql/v12/visibility
