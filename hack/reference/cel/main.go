// Command cel judges CEL texts as the API server and kube-scheduler do: upstream's own compiler, one question a line of JSON.
//
//	{"text": "...", "stored": false, "devices": [{"driver": "d", "attributes": {...}, "capacity": {...}}]}
//	{"refused": "why", "cost": 12, "verdicts": [{"matches": true}, {"failed": "no such key: x"}]}
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

type question struct {
	Text    string   `json:"text"`
	Stored  bool     `json:"stored"`
	Devices []device `json:"devices"`
}

type device struct {
	Driver     string                                                    `json:"driver"`
	Shared     bool                                                      `json:"shared"`
	Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
}

type verdict struct {
	Matches bool   `json:"matches"`
	Failed  string `json:"failed,omitempty"`
}

type answer struct {
	Refused  string    `json:"refused,omitempty"`
	Cost     uint64    `json:"cost"`
	Verdicts []verdict `json:"verdicts"`
}

func judged(asked question) (result answer) {
	defer func() { // some texts make upstream panic; an API server answers those with an error
		if found := recover(); found != nil {
			result = answer{Refused: fmt.Sprintf("panic: %v", found)}
		}
	}()
	features := cel.Features{EnableConsumableCapacity: true}
	kind := environment.NewExpressions
	if asked.Stored {
		kind = environment.StoredExpressions
	}
	found := cel.GetCompiler(features).CompileCELExpression(asked.Text, cel.Options{EnvType: &kind})
	if found.Error != nil {
		return answer{Refused: found.Error.Detail}
	}
	result = answer{Cost: found.MaxCost}
	for _, one := range asked.Devices {
		matches, _, err := found.DeviceMatches(context.Background(), cel.Device{
			Driver: one.Driver, AllowMultipleAllocations: &one.Shared, Attributes: one.Attributes, Capacity: one.Capacity,
		})
		said := verdict{Matches: matches}
		if err != nil {
			said.Failed = err.Error()
		}
		result.Verdicts = append(result.Verdicts, said)
	}
	return result
}

func main() {
	lines, out := bufio.NewReaderSize(os.Stdin, 1<<20), json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := out.Encode(judged(asked)); err != nil {
			return
		}
	}
}
