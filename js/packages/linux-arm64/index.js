// @cove/linux-arm64: where the programs of cove are that came with this package. `cove` finds the others beside it.
"use strict";

const path = require("node:path");

exports.cove = path.join(__dirname, "bin", "cove");
