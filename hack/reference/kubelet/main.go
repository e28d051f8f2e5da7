// A stand-in for the kubelet's side of DRA that a program can order about: it registers the plugin whose socket appears,
// then obeys one JSON order a line on stdin and answers each with one JSON line of timings on stdout. It is small and in
// Go, so that its own cost is the same and little whichever plugin it calls.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// order: `calls` are made by `workers` at once, each with the claims that it lists.
type order struct {
	Verb     string    `json:"verb"`
	Registry string    `json:"registry"`
	Driver   string    `json:"driver"`
	Calls    [][]claim `json:"calls"`
	Workers  int       `json:"workers"`
	TimeoutS float64   `json:"timeout_s"`
}

type answer struct {
	MS     []float64 `json:"ms"`
	WallMS float64   `json:"wall_ms"`
	Errors []string  `json:"errors"`
	Fatal  string    `json:"fatal"`
}

type kubelet struct{ connection *grpc.ClientConn }

func main() {
	var k kubelet
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			log.Fatal(err)
		}
		if err := answers.Encode(k.obey(o)); err != nil {
			log.Fatal(err)
		}
	}
}

func (k *kubelet) obey(o order) answer {
	timeout := time.Duration(o.TimeoutS * float64(time.Second))
	began := time.Now()
	switch o.Verb {
	case "register":
		if err := k.register(o.Registry, o.Driver, timeout); err != nil {
			return answer{Fatal: err.Error()}
		}
		return answer{WallMS: since(began)}
	case "prepare":
		return k.each(o, timeout, k.prepare)
	case "unprepare":
		return k.each(o, timeout, k.unprepare)
	}
	return answer{Fatal: "unknown verb " + o.Verb}
}

// register finds the driver's registration socket and does what a kubelet does with it, until it works or time is up.
func (k *kubelet) register(registry, driver string, timeout time.Duration) error {
	err := errors.New("no registration socket")
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		sockets, _ := filepath.Glob(filepath.Join(registry, "*.sock"))
		for _, socket := range sockets {
			if err = k.greet(socket, driver); err == nil {
				return nil
			}
		}
	}
	return fmt.Errorf("%s in %s: %w", driver, registry, err)
}

func (k *kubelet) greet(socket, driver string) error {
	registrar, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer registrar.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	client := registration.NewRegistrationClient(registrar)
	info, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return err
	}
	if info.Type != registration.DRAPlugin || info.Name != driver || !slices.Contains(info.SupportedVersions, dra.DRAPluginService) {
		return fmt.Errorf("not the plugin that is wanted: %v", info)
	}
	if k.connection != nil {
		k.connection.Close()
	}
	if k.connection, err = grpc.NewClient("unix://"+info.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	if slices.Contains(info.SupportedVersions, health.DRAResourceHealthService) {
		go listen(k.connection)
	}
	_, err = client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true})
	return err
}

// listen keeps the health stream open, as a kubelet does, and forgets what it hears.
func listen(connection *grpc.ClientConn) {
	stream, err := health.NewDRAResourceHealthClient(connection).NodeWatchResources(context.Background(), &health.NodeWatchResourcesRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
}

func (k *kubelet) each(o order, timeout time.Duration, call func(context.Context, []claim) []string) answer {
	a := answer{MS: make([]float64, len(o.Calls))}
	var mutex sync.Mutex
	var group sync.WaitGroup
	next := make(chan int)
	began := time.Now()
	for range max(1, o.Workers) {
		group.Go(func() {
			for i := range next {
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				start := time.Now()
				failures := call(ctx, o.Calls[i])
				a.MS[i] = since(start)
				cancel()
				mutex.Lock()
				a.Errors = append(a.Errors, failures...)
				mutex.Unlock()
			}
		})
	}
	for i := range o.Calls {
		next <- i
	}
	close(next)
	group.Wait()
	a.WallMS = since(began)
	return a
}

func (k *kubelet) prepare(ctx context.Context, claims []claim) []string {
	response, err := dra.NewDRAPluginClient(k.connection).NodePrepareResources(ctx, &dra.NodePrepareResourcesRequest{Claims: wire(claims)})
	if err != nil {
		return []string{err.Error()}
	}
	var failures []string
	for _, c := range claims {
		switch result := response.Claims[c.UID]; {
		case result == nil:
			failures = append(failures, c.Name+": no answer")
		case result.Error != "":
			failures = append(failures, c.Name+": "+result.Error)
		case len(result.Devices) == 0 || len(result.Devices[0].CdiDeviceIds) == 0:
			failures = append(failures, c.Name+": no CDI device")
		}
	}
	return failures
}

func (k *kubelet) unprepare(ctx context.Context, claims []claim) []string {
	response, err := dra.NewDRAPluginClient(k.connection).NodeUnprepareResources(ctx, &dra.NodeUnprepareResourcesRequest{Claims: wire(claims)})
	if err != nil {
		return []string{err.Error()}
	}
	var failures []string
	for _, c := range claims {
		if result := response.Claims[c.UID]; result == nil || result.Error != "" {
			failures = append(failures, fmt.Sprintf("%s: %v", c.Name, result))
		}
	}
	return failures
}

func wire(claims []claim) []*dra.Claim {
	var result []*dra.Claim
	for _, c := range claims {
		result = append(result, &dra.Claim{Namespace: c.Namespace, Name: c.Name, Uid: c.UID})
	}
	return result
}

func since(start time.Time) float64 { return float64(time.Since(start)) / 1e6 }
