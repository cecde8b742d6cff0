package matrix

import _ "embed"

//go:embed schema.json
var schema string

// Schema returns the JSON Schema of matrix files, for editors and for other
// programs that write them. It is generated from File; Expand is what decides.
func Schema() string { return schema }
