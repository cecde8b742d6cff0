package matrix

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/oomfleet/oomfleet/proto"
)

// The schema is generated here and not in the package, so that the generator is
// no part of the binary. go test ./matrix -run TestSchema -rewrite writes it.

type object = jsonschema.Schema

// number is a whole number, which may stand in quotes.
func number(least, most int) *object {
	return &object{OneOf: []*object{
		{Type: "integer", Minimum: jsonNumber(least), Maximum: jsonNumber(most)},
		{Type: "string", Pattern: `^(0|[1-9][0-9]*)$`},
	}}
}

func jsonNumber(n int) json.Number {
	text, _ := json.Marshal(n)
	return json.Number(text)
}

func jsonFloat(f float64) json.Number {
	text, _ := json.Marshal(f)
	return json.Number(text)
}

func oneOrMany(item *object) *object {
	least := uint64(1)
	return &object{OneOf: []*object{item, {Type: "array", Items: item, MinItems: &least}}}
}

// plain is a value that is taken as text: YAML itself may see a number in 580.10
// and a boolean in yes.
func plain() *object {
	return &object{OneOf: []*object{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}}
}

func enum(words ...string) *object {
	schema := &object{Type: "string"}
	for _, word := range words {
		schema.Enum = append(schema.Enum, word)
	}
	return schema
}

// valueTypes describes the types that File uses for values.
func valueTypes(t reflect.Type) *object {
	switch t {
	case reflect.TypeFor[SeqLens]():
		return oneOrMany(number(1, MaxSeqLen))
	case reflect.TypeFor[Batches]():
		return oneOrMany(number(1, MaxBatch))
	case reflect.TypeFor[ChunkSizes]():
		return oneOrMany(number(0, MaxChunkSize))
	case reflect.TypeFor[Recycles]():
		return number(0, MaxRecycles)
	case reflect.TypeFor[MaxCells]():
		return number(1, HardMaxCells)
	case reflect.TypeFor[MaxPerDay]():
		return number(1, HardMaxPerDay)
	case reflect.TypeFor[Repeats]():
		return number(0, MaxRepeats)
	case reflect.TypeFor[Confidence]():
		return &object{OneOf: []*object{
			{Type: "number", Minimum: jsonFloat(MinConfidence), Maximum: jsonFloat(MaxConfidence)},
			{Type: "string", Pattern: `^0\.[0-9]+$`},
		}}
	case reflect.TypeFor[Drivers]():
		return oneOrMany(&object{OneOf: []*object{{Type: "string", Pattern: `^(installed|[0-9][A-Za-z0-9._+-]*)$`}, {Type: "number"}}})
	case reflect.TypeFor[Envs]():
		vars := &object{Type: "object", PropertyNames: &object{Pattern: variableName.String()}, AdditionalProperties: plain()}
		pairs := &object{Type: "string", Pattern: `^[A-Za-z_][A-Za-z0-9_]*=`}
		return oneOrMany(&object{OneOf: []*object{vars, pairs}})
	case reflect.TypeFor[Amount]():
		return &object{OneOf: []*object{{Type: "integer", Minimum: "0"}, {Type: "string", Pattern: `^[0-9]+(\.[0-9]+)? ?(B|KiB|MiB|GiB)?$`}}}
	case reflect.TypeFor[map[string]string]():
		return &object{Type: "object", AdditionalProperties: plain()}
	}
	return nil
}

func generate(t *testing.T) []byte {
	t.Helper()
	reflector := &jsonschema.Reflector{Mapper: valueTypes, Anonymous: true}
	if err := reflector.AddGoComments("github.com/oomfleet/oomfleet/matrix", "."); err != nil {
		t.Fatal(err)
	}
	root := reflector.Reflect(File{})
	root.Title = "OOMFleet matrix"
	params := reflector.Reflect(FileESMFold{}).Definitions["FileESMFold"]
	root.Definitions["FileESMFold"] = params
	set := func(definition, key string, to *object) {
		property, ok := root.Definitions[definition].Properties.Get(key)
		if !ok {
			t.Fatalf("the schema has no %s.%s", definition, key)
		}
		to.Description = property.Description
		root.Definitions[definition].Properties.Set(key, to)
	}
	kinds := make([]string, 0, 3)
	for _, kind := range proto.QuotaKinds() {
		kinds = append(kinds, string(kind))
	}
	set("File", "apiVersion", &object{Const: APIVersion})
	set("File", "name", &object{Type: "string", Pattern: sweepName.String()})
	set("FileWorkload", "name", &object{OneOf: []*object{{Const: ESMFold}, {Type: "string", Pattern: ownProgram.String()}}})
	set("FileESMFold", "model", enum(esmfoldModels()...))
	set("FileESMFold", "weights", &object{Type: "string", Pattern: `^(random|/.*)$`})
	set("FileESMFold", "stem", enum(stemTypes()...))
	set("FileESMFold", "trunk", enum(trunkTypes()...))
	set("FileQuota", "kind", enum(kinds...))
	set("FileSearch", "strategy", enum(string(proto.StrategyPredict), string(proto.StrategyBisect)))
	set("FileRollout", "on", enum(string(proto.TriggerNewStack)))
	set("FileSearch", "certify", &object{Type: "string", Pattern: `^(edges|all|none|sample +[0-9]{1,3} ?%)$`})
	isESMFold := &object{Properties: jsonschema.NewProperties()}
	isESMFold.Properties.Set("name", &object{Const: ESMFold})
	typed := &object{Properties: jsonschema.NewProperties()}
	typed.Properties.Set("params", &object{Ref: "#/$defs/FileESMFold"})
	root.Definitions["FileWorkload"].If, root.Definitions["FileWorkload"].Then = isESMFold, typed
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

func TestSchemaIsGenerated(t *testing.T) {
	golden(t, "schema.json", string(generate(t)))
	if !*rewrite && Schema() != string(generate(t)) {
		t.Error("the embedded schema is not the generated one")
	}
}

// asJSON decodes a YAML file as an editor does, into what a schema can judge.
func asJSON(t *testing.T, path string) any {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal(source, &value); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	decoded, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

func compile(t *testing.T) *validator.Schema {
	t.Helper()
	document, err := validator.UnmarshalJSON(bytes.NewReader(generate(t)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := validator.NewCompiler()
	if err := compiler.AddResource("matrix.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("matrix.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestSchemaAccepts holds the schema to what Expand accepts: an editor must not
// underline a file that works.
func TestSchemaAccepts(t *testing.T) {
	schema := compile(t)
	paths := append(sources(t, "testdata/good/*.yaml", 6), sources(t, "../deploy/examples/*.yaml", 3)...)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if err := schema.Validate(asJSON(t, path)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSchemaRefuses holds the schema to the mistakes that an editor can see.
func TestSchemaRefuses(t *testing.T) {
	schema := compile(t)
	for _, name := range []string{
		"unknown-key", "unknown-key-no-match", "no-api-version", "wrong-api-version", "bad-name", "top-level-list",
		"empty-axis", "null-axis", "missing-seq-len", "null-section", "not-a-number", "out-of-range", "chunk-none",
		"driver-typo", "nested-list", "rule-not-a-list", "null-rules", "rule-unknown-key", "workload-unknown",
		"workload-params", "workload-missing", "quota-values", "search-values", "search-certify-word", "limit-over-ceiling",
		"rollout-values", "rollout-no-trigger",
		"env-null-item", "env-null-value", "env-bad-name", "env-not-pairs", "value-mapping", "everything",
	} {
		t.Run(name, func(t *testing.T) {
			if err := schema.Validate(asJSON(t, "testdata/broken/"+name+".yaml")); err == nil {
				t.Error("the schema accepts it")
			}
		})
	}
}
