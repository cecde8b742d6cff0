package main

// namedTests names, for command lines in documents that no transcript runs, the
// test that runs the command: the longest start of the line counts. The words
// stand in the file of that test. A run on a GPU is none of a test's: of it, the
// matrix is checked, and docs/measured holds what came of it.
func namedTests() map[string][3]string {
	const fleet = "../../internal/devfleet"
	return map[string][3]string{ // folder, test, words
		"make demo":                       {fleet, "TestDevSettlesTheSmallMatrix", `"dev", "--submit", smallMatrix`},
		"make test":                       {"../../internal/lint", "TestMakeHelp", `texts["Makefile"]`},
		"make sim":                        {"../../internal/fleetsim", "TestHistories", `"faults"`},
		"fleetctl dev":                    {fleet, "TestDevSettlesTheSmallMatrix", `"dev", "--submit"`},
		"fleetctl dev --agent gpu":        {"../../matrix", "TestExamplesHold", `"esmfold-gpu.yaml"`},
		"fleetctl matrix submit":          {fleet, "TestRollout", `"matrix", "submit", nightlyMatrix`},
		"fleetctl matrix list":            {fleet, "TestCommands", `"matrix", "list"`},
		"fleetctl quota recommend":        {fleet, "TestCommands", `"quota", "recommend"`},
		"fleetctl quota max-seq-len":      {".", "TestQuotaTranscripts", `../../docs/quota.md`}, // which shows this very line
		"fleetctl coordinator":            {fleet, "TestClusterCommands", `"coordinator", "--config", file, "--id", id`},
		"fleetctl agent":                  {fleet, "TestBadSurroundings", `"agent", "--config", "CONFIG"`},
		"fleetctl cluster status":         {fleet, "TestClusterCommands", `"cluster", "status"`},
		"fleetctl cluster recover":        {fleet, "TestClusterRecovered", `"cluster", "recover", "--config"`},
		"fleetctl secure authority":       {".", "TestSecureSetsUpAQueue", `"secure", "authority", "--dir"`},
		"fleetctl secure certificate":     {".", "TestSecureSetsUpAQueue", `"secure", "certificate", "--dir"`},
		"fleetctl secure nkey":            {".", "TestSecureSetsUpAQueue", `"secure", "nkey", "--role", "agent", "--gpu"`},
		"fleetctl token new":              {".", "TestTokenIsShownOnce", `"token", "new", "--role"`},
		"fleetctl trace boundary":         {".", "TestBoundaryOfTheContract", `boundary`},
		"go test ./internal/fleetsim":     {"../../internal/fleetsim", "TestHistories", "flag."},
		"go test ./internal/devfleet":     {fleet, "TestSixtyCells", "-rewrite"},
		"go test ./allocator":             {"../../allocator", "TestDriverSpace", "func "},
		"curl 'http://127.0.0.1:7400/v1/": {".", "TestAPITranscripts", `"curl"`},
	}
}
