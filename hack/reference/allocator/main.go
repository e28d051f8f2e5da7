// Upstream's structured allocator on orders from stdin, one JSON object a line, an answer a line: the oracle for ours.
//
//	{"verb": "cluster", "nodes": [...], "slices": [...], "classes": [...], "claims": [allocated ones]}
//	{"verb": "allocate", "claims": [...], "nodes": ["n1"], "keep": true}
//
// "cluster" replaces what is known. "allocate" tries the nodes in order (none given: each that is known) and stops at the
// first that fits; "all": true tries every one. "keep": what was found is counted as allocated from then on. The gates are
// those that kube-scheduler 1.37 has on by default, and the state is kept as kube-scheduler keeps it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

var gates = structured.Features{
	AdminAccess:             true,
	ConsumableCapacity:      true,
	DeviceBindingAndStatus:  true,
	DeviceTaints:            true,
	FractionalCapacityRange: true,
	PartitionableDevices:    true,
	PrioritizedList:         true,
}

type order struct {
	Verb    string                       `json:"verb"`
	Nodes   json.RawMessage              `json:"nodes"`
	Slices  []*resourceapi.ResourceSlice `json:"slices"`
	Classes []*resourceapi.DeviceClass   `json:"classes"`
	Claims  []*resourceapi.ResourceClaim `json:"claims"`
	All     bool                         `json:"all"`
	Keep    bool                         `json:"keep"`
	LimitS  float64                      `json:"limit_s"`
}

type verdict struct {
	Node     string                         `json:"node"`
	Found    []resourceapi.AllocationResult `json:"found,omitempty"`
	Error    string                         `json:"error,omitempty"`
	NodeOnly bool                           `json:"node_only,omitempty"`
	TimedOut bool                           `json:"timed_out,omitempty"`
}

type answer struct {
	Verdicts []verdict `json:"verdicts"`
	Error    string    `json:"error,omitempty"`
	SetupMS  float64   `json:"setup_ms"`
	TookMS   float64   `json:"took_ms"`
}

type classes map[string]*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	var all []*resourceapi.DeviceClass
	for _, class := range c {
		all = append(all, class)
	}
	return all, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, found := c[name]; found {
		return class, nil
	}
	return nil, fmt.Errorf("class %q not found", name)
}

type cluster struct {
	names   []string
	nodes   map[string]*corev1.Node
	slices  []*resourceapi.ResourceSlice
	classes classes
	state   structured.AllocatedState
	texts   *cel.Cache
}

func made(given order) (*cluster, error) {
	var nodes []*corev1.Node
	if err := json.Unmarshal(given.Nodes, &nodes); err != nil {
		return nil, err
	}
	c := &cluster{
		nodes:   map[string]*corev1.Node{},
		slices:  given.Slices,
		classes: classes{},
		texts:   cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}),
		state: structured.AllocatedState{
			AllocatedDevices:         sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
		},
	}
	for _, node := range nodes {
		c.names = append(c.names, node.Name)
		c.nodes[node.Name] = node
	}
	for _, class := range given.Classes {
		c.classes[class.Name] = class
	}
	for _, claim := range given.Claims {
		if claim.Status.Allocation != nil {
			c.book(claim.Status.Allocation.Devices.Results)
		}
	}
	return c, nil
}

func (c *cluster) book(results []resourceapi.DeviceRequestAllocationResult) {
	for _, result := range results {
		id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
		switch {
		case result.AdminAccess != nil && *result.AdminAccess:
		case result.ShareID != nil:
			c.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
			if result.ConsumedCapacity != nil {
				c.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		default:
			c.state.AllocatedDevices.Insert(id)
		}
	}
}

func (c *cluster) allocate(given order) (answer, error) {
	var names []string
	if len(given.Nodes) > 0 {
		if err := json.Unmarshal(given.Nodes, &names); err != nil {
			return answer{}, err
		}
	}
	if len(names) == 0 {
		names = c.names
	}
	started := time.Now()
	state := structured.AllocatedState{
		AllocatedDevices:         c.state.AllocatedDevices.Clone(),
		AllocatedSharedDeviceIDs: c.state.AllocatedSharedDeviceIDs.Clone(),
		AggregatedCapacity:       c.state.AggregatedCapacity.Clone(),
	}
	ctx := context.Background()
	allocator, err := structured.NewAllocator(ctx, gates, state, c.classes, c.slices, c.texts)
	if err != nil {
		return answer{}, err
	}
	out := answer{SetupMS: ms(started)}
	for _, name := range names {
		node := c.nodes[name]
		if node == nil {
			node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		}
		told := c.one(ctx, allocator, node, given)
		out.Verdicts = append(out.Verdicts, told)
		if told.Found != nil && given.Keep {
			for _, one := range told.Found {
				c.book(one.Devices.Results)
			}
		}
		if !given.All && (told.Found != nil || (told.Error != "" && !told.NodeOnly)) {
			break
		}
	}
	out.TookMS = ms(started)
	return out, nil
}

func (c *cluster) one(ctx context.Context, allocator structured.Allocator, node *corev1.Node, given order) verdict {
	if given.LimitS > 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(given.LimitS*float64(time.Second)))
		defer cancel()
		ctx = limited
	}
	found, err := allocator.Allocate(ctx, node, given.Claims)
	told := verdict{Node: node.Name, Found: found}
	if err != nil {
		told.Error = err.Error()
		told.NodeOnly = errors.Is(err, structured.ErrFailedAllocationOnNode)
		told.TimedOut = errors.Is(err, context.DeadlineExceeded)
	}
	return told
}

func ms(since time.Time) float64 {
	return float64(time.Since(since).Microseconds()) / 1000
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	var known *cluster
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return
		}
		told, err := obeyed(&known, line)
		if err != nil {
			told = answer{Error: err.Error()}
		}
		if err := out.Encode(told); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func obeyed(known **cluster, line []byte) (answer, error) {
	var given order
	if err := json.Unmarshal(line, &given); err != nil {
		return answer{}, err
	}
	switch given.Verb {
	case "cluster":
		now, err := made(given)
		if err == nil {
			*known = now
		}
		return answer{}, err
	case "allocate":
		if *known == nil {
			return answer{}, errors.New("no cluster was given yet")
		}
		return (*known).allocate(given)
	}
	return answer{}, fmt.Errorf("unknown verb %q", given.Verb)
}
