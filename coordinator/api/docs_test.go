package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/oomfleet/oomfleet/coordinator/api"
	"github.com/oomfleet/oomfleet/internal/secret"
)

func apiDocument(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocumentListsEverything holds the table of docs/api.md to the served
// OpenAPI document, and its roles to what tokens of each role may do.
func TestDocumentListsEverything(t *testing.T) {
	c := newCluster(t)
	k := newKeyring(t)
	var log syncBuffer
	server := c.guarded("n1", k, &log, httptest.NewServer, api.Access{})
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(c.request("GET", server.URL+"/openapi.json", "").body), &doc); err != nil {
		t.Fatal(err)
	}
	want := []string{"GET /metrics"} // this server has none
	for path, ops := range doc.Paths {
		for method := range ops {
			want = append(want, strings.ToUpper(method)+" "+path)
		}
	}
	roles := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (GET|POST|PUT|DELETE) \\| `([^`]+)` \\| (\\w+) \\|").FindAllStringSubmatch(apiDocument(t), -1) {
		roles[row[1]+" "+row[2]] = row[3]
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(roles)); !slices.Equal(got, slices.Compact(want)) {
		t.Errorf("docs/api.md lists\n%s\nand the API has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ranks := []string{"none", "read", "write", "admin"}
	for op, role := range roles {
		method, path, _ := strings.Cut(op, " ")
		path = strings.NewReplacer("{id}", "none", "{cell}", "none", "{digest}", strings.Repeat("0", 64)).Replace(path)
		if path == "/v1/watch" {
			path += "?kinds=none" // else it has no end
		}
		for rank, token := range []secret.Text{{}, k.read, k.write, k.admin} {
			if may := c.may(method, server.URL+path, token); may != (rank >= slices.Index(ranks, role)) {
				t.Errorf("%s: a token of role %s may: %v; docs/api.md says it needs %s", op, ranks[rank], may, role)
			}
		}
	}
}

// may is whether a request is not refused for its token.
func (c *cluster) may(method, url string, token secret.Text) bool {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, url, nil)
	if err != nil {
		c.Fatal(err)
	}
	if !token.Empty() {
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusForbidden
}

// TestDocumentListsCodes: every code that the source can answer with is in the
// document's table.
func TestDocumentListsCodes(t *testing.T) {
	text := apiDocument(t)
	n := 0
	for file, pattern := range map[string]string{"errors.go": `Code\w+\s+= "(\w+)"`, "../quota/question.go": `Code = "(\w+)"`} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(source), -1) {
			n++
			if !regexp.MustCompile("(?m)^\\|[^|]*`" + code[1] + "`[^|]*\\| [0-9]").MatchString(text) {
				t.Errorf("docs/api.md does not say what %s means", code[1])
			}
		}
	}
	if n < 16 {
		t.Errorf("only %d codes were found", n)
	}
}

// TestDocumentShowsTheExample: the Go lines of the document are those of Example,
// which compile.
func TestDocumentShowsTheExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(apiDocument(t))
	if block == nil || !strings.Contains(string(source), block[1]) {
		t.Errorf("docs/api.md shows other lines than example_test.go: %v", block)
	}
}

// TestAnswersSayWhereTheyStand: the OpenAPI document and the answers themselves,
// of every read of the registry.
func TestAnswersSayWhereTheyStand(t *testing.T) {
	c, _, follower, _ := rolledOut(t)
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Parameters  []struct{ Name, In string }
			Responses   map[string]struct{ Headers map[string]json.RawMessage }
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	if err := json.Unmarshal([]byte(c.request("GET", follower.URL+"/openapi.json", "").body), &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Fatalf("%s: %v", doc.OpenAPI, err)
	}
	reads := 0
	for path, ops := range doc.Paths {
		for method, op := range ops {
			want := []string{"Oomfleet-Age-Seconds", "Oomfleet-Applied-Index", "Oomfleet-Role"}
			switch {
			case method != "get":
				want = want[1:2]
			case !strings.HasPrefix(path, "/v1/"), slices.Contains([]string{"agents", "cluster", "trace", "watch"}, op.OperationID):
				want = nil
			case op.OperationID == "trace-url":
				want = []string{"Cache-Control"}
			default:
				reads++
				if !slices.ContainsFunc(op.Parameters, func(p struct{ Name, In string }) bool { return p.Name == "Oomfleet-Min-Index" && p.In == "header" }) {
					t.Errorf("%s does not take Oomfleet-Min-Index", path)
				}
			}
			if got := slices.Sorted(maps.Keys(op.Responses["200"].Headers)); !slices.Equal(got, want) {
				t.Errorf("%s %s: headers %v, want %v", method, path, got, want)
			}
		}
	}
	if reads < 14 {
		t.Errorf("only %d reads", reads)
	}
	for schema, fields := range map[string]string{
		"Recommendation": "applied_index age_seconds role origin domain extrapolated", "Largest": "applied_index age_seconds role at",
		"Replicas": "applied_index age_seconds role at", "SweepComparison": "applied_index age_seconds role basis",
		"SweepReport": "applied_index age_seconds role origin", "Coefficients": "origin domain", "BoundaryEntry": "origin",
	} {
		for field := range strings.FieldsSeq(fields) {
			if doc.Components.Schemas[schema].Properties[field] == nil {
				t.Errorf("%s has no %s", schema, field)
			}
		}
	}
	for _, path := range []string{"/v1/quota?seq_len=64", "/v1/quota/max-seq-len?quota_bytes=8589934592", "/v1/compare?after=new", "/v1/sweeps/all", "/v1/boundaries"} {
		var at map[string]any
		if got := c.request("GET", follower.URL+path, ""); json.Unmarshal([]byte(got.body), &at) != nil || at["role"] != "follower" || at["applied_index"] == nil || at["age_seconds"] == nil {
			t.Errorf("%s: %s", path, got.body)
		}
	}
}
