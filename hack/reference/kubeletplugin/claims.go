package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"
)

const kind = "k8s.reference.elasticgpu.io/claim"

// record is what the checkpoint says of a claim.
type record struct {
	Done    bool
	Devices []kubeletplugin.Device
}

// checkpoint is the whole file: read, changed and written again for every claim.
type checkpoint struct {
	Checksum uint32
	Claims   map[types.UID]record
}

// claims is everything that is prepared: the checkpoint file and the CDI specs.
type claims struct {
	mutex    sync.Mutex
	file     string
	cdi      string
	cache    *cdiapi.Cache
	template cdispecs.Spec
	lean     bool
}

func open(data, cdi string, template cdispecs.Spec, lean bool) (*claims, error) {
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(cdi))
	if err != nil {
		return nil, err
	}
	return &claims{file: filepath.Join(data, "checkpoint.json"), cdi: cdi, cache: cache, template: template, lean: lean}, nil
}

func (c *claims) prepare(uid types.UID, devices []kubeletplugin.Device) ([]kubeletplugin.Device, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	state, err := c.load()
	if err != nil {
		return nil, err
	}
	if held, found := state.Claims[uid]; found && held.Done {
		if c.lean {
			return held.Devices, nil
		}
		return held.Devices, c.writeSpec(uid, held.Devices)
	}
	if !c.lean {
		state.Claims[uid] = record{}
		if err := c.save(state); err != nil {
			return nil, err
		}
	}
	for i := range devices {
		devices[i].CDIDeviceIDs = []string{kind + "=" + deviceName(uid, devices[i])}
	}
	if err := c.writeSpec(uid, devices); err != nil {
		return nil, err
	}
	state.Claims[uid] = record{Done: true, Devices: devices}
	return devices, c.save(state)
}

func (c *claims) unprepare(uid types.UID) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	state, err := c.load()
	if err != nil {
		return err
	}
	if _, found := state.Claims[uid]; !found {
		return nil
	}
	if err := c.cache.RemoveSpec(specName(uid)); err != nil {
		return err
	}
	delete(state.Claims, uid)
	return c.save(state)
}

func (c *claims) writeSpec(uid types.UID, devices []kubeletplugin.Device) error {
	spec := c.template
	spec.Kind, spec.Devices = kind, nil
	for i, device := range devices {
		edits := c.template.Devices[i%len(c.template.Devices)].ContainerEdits
		spec.Devices = append(spec.Devices, cdispecs.Device{Name: deviceName(uid, device), ContainerEdits: edits})
	}
	if err := c.cache.WriteSpec(&spec, specName(uid)); err != nil {
		return err
	}
	return syncFile(filepath.Join(c.cdi, specName(uid)))
}

func (c *claims) load() (checkpoint, error) {
	state := checkpoint{Claims: map[types.UID]record{}}
	text, err := os.ReadFile(c.file)
	if errors.Is(err, os.ErrNotExist) {
		return state, nil
	}
	if err != nil {
		return state, err
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return state, fmt.Errorf("%s: %w", c.file, err)
	}
	if sum, err := checksum(state); err != nil || sum != state.Checksum {
		return state, fmt.Errorf("%s: the checksum does not fit: %w", c.file, err)
	}
	return state, nil
}

func (c *claims) save(state checkpoint) error {
	var err error
	if state.Checksum, err = checksum(state); err != nil {
		return err
	}
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file+".new", text, 0o600); err != nil {
		return err
	}
	if err := syncFile(c.file + ".new"); err != nil {
		return err
	}
	return os.Rename(c.file+".new", c.file)
}

func checksum(state checkpoint) (uint32, error) {
	state.Checksum = 0
	text, err := json.Marshal(state)
	return crc32.ChecksumIEEE(text), err
}

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

func deviceName(uid types.UID, device kubeletplugin.Device) string {
	return strings.Join([]string{string(uid), device.Requests[0], device.DeviceName}, "-")
}

// specName has a suffix, since the library would write YAML otherwise.
func specName(uid types.UID) string {
	return cdiapi.GenerateTransientSpecName("k8s.reference.elasticgpu.io", "claim", string(uid)) + ".json"
}
