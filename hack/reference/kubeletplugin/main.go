// A DRA driver as one writes it in Go: upstream's helper for the kubelet's side, one checkpoint file for all claims, the
// CDI library for the spec files. It is what `make bench` measures our driver against, so it does the same work for a
// claim and leaves the same files, each of them synced: intent, CDI spec, done. It knows no cards.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"
)

type driver struct {
	name   string
	stop   context.CancelFunc
	claims *claims
}

func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := d.claims.prepare(claim.UID, d.own(claim))
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = d.claims.unprepare(claim.UID)
	}
	return results, nil
}

func (d *driver) own(claim *resourceapi.ResourceClaim) []kubeletplugin.Device {
	var devices []kubeletplugin.Device
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == d.name {
			devices = append(devices, kubeletplugin.Device{
				Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device, ShareID: result.ShareID,
			})
		}
	}
	return devices
}

func (d *driver) HandleError(_ context.Context, err error, message string) {
	log.Printf("%s: %v", message, err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.stop()
	}
}

func (d *driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

func main() {
	var (
		name       = flag.String("driver", "reference.elasticgpu.io", "driver name")
		node       = flag.String("node", "", "node name")
		kubeconfig = flag.String("kubeconfig", "", "how to reach the API server")
		qps        = flag.Float64("qps", 100000, "client limit in requests a second; the default lifts it, 0 takes that of client-go")
		registry   = flag.String("registry", kubeletplugin.KubeletRegistryDir, "directory of registration sockets")
		plugins    = flag.String("plugins", kubeletplugin.KubeletPluginsDir, "directory of the plugins' own directories")
		cdi        = flag.String("cdi", "/var/run/cdi", "directory of CDI specs")
		edits      = flag.String("edits", "", "a CDI spec whose edits every device gets")
		lean       = flag.Bool("lean", false, "as upstream's example driver: no checkpoint before the CDI spec, a repeat leaves the spec alone")
		count      = flag.Int("devices", 16, "how many devices to publish")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	d := &driver{name: *name, stop: stop}
	if err := d.run(ctx, *node, *kubeconfig, float32(*qps), *registry, filepath.Join(*plugins, *name), *cdi, *edits, *lean, *count); err != nil {
		log.Fatal(err)
	}
}

func (d *driver) run(ctx context.Context, node, kubeconfig string, qps float32, registry, data, cdi, edits string, lean bool, count int) error {
	var template cdispecs.Spec
	text, err := os.ReadFile(edits)
	if err != nil {
		return fmt.Errorf("the edits: %w", err)
	}
	if err := json.Unmarshal(text, &template); err != nil {
		return fmt.Errorf("the edits in %s: %w", edits, err)
	}
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	if d.claims, err = open(data, cdi, template, lean); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = qps, int(qps)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.KubeClient(client), kubeletplugin.NodeName(node), kubeletplugin.DriverName(d.name),
		kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return err
	}
	defer helper.Stop()
	devices := make([]resourceapi.Device, count)
	for i := range devices {
		devices[i].Name = fmt.Sprintf("gpu-%d", i)
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{"egpu/" + node: pool}}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
