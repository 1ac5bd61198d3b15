// A program that a user of oapi-codegen would write: it calls each operation once, with the functions and types that
// were made of openapi.yaml. Where the generator has no type of an answer (lines of JSON, archives, any server's
// answer) its bytes are there.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"time"

	"calls/api"
)

type answer interface {
	StatusCode() int
	Status() string
}

// ask gives the answer of a call, which must be a success.
func ask[T answer](said T, err error) T {
	if err != nil {
		panic(err)
	}
	if said.StatusCode() < 200 || said.StatusCode() > 299 {
		panic(fmt.Sprintf("%T: %s: %+v", said, said.Status(), said))
	}
	return said
}

// read gives the bytes of an answer of which the generator has no type.
func read(said *http.Response, err error) string {
	if err != nil {
		panic(err)
	}
	defer said.Body.Close()
	if said.StatusCode != http.StatusOK {
		panic(said.Request.URL.Path + ": " + said.Status)
	}
	return string(must(io.ReadAll(said.Body)))
}

// refused is an upgrade that the generated client does not ask for: the server says so.
func refused[T answer](said T, err error) {
	if err != nil || said.StatusCode() != http.StatusUpgradeRequired {
		panic(fmt.Sprintf("%T: %v %v", said, said.StatusCode(), err))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func same[T comparable](is, wanted T) {
	if is != wanted {
		panic(fmt.Sprintf("%v is not %v", is, wanted))
	}
}

func of[T any](value T) *T { return &value }

const (
	octets = "application/octet-stream"
	tmpA   = "/tmp/a"
)

func main() {
	ctx := context.Background()
	key := "Bearer " + os.Getenv("COVE_API_KEY")
	c := must(api.NewClientWithResponses(os.Getenv("COVE_URL"), api.WithRequestEditorFn(
		func(_ context.Context, request *http.Request) error {
			request.Header.Set("Authorization", key)
			return nil
		})))
	host(ctx, c)
	box := sandbox(ctx, c)
	commands(ctx, c, box)
	mounts(ctx, c, box)
	ports(ctx, c, box)
	files(ctx, c, box)
	access(ctx, c, box)
	kernels(ctx, c)
	events := read(c.ListenEvents(ctx, &api.ListenEventsParams{From: of(1), ForMs: of(300)}))
	same(strings.Contains(events, "sandbox.created"), true)
	ask(c.DeleteSandboxWithResponse(ctx, box))
}

func host(ctx context.Context, c *api.ClientWithResponses) {
	same(ask(c.GetHealthWithResponse(ctx)).JSON200.Status, "ok")
	same(ask(c.GetReadinessWithResponse(ctx)).JSON200.Status, "ok")
	ask(c.GetMetricsWithResponse(ctx))
	same(ask(c.GetVersionWithResponse(ctx)).JSON200.Api, "v1")
	same(strings.HasPrefix(read(c.GetOpenapi(ctx)), "openapi: 3.1"), true)
	same(len(ask(c.ListRootsWithResponse(ctx)).JSON200.Mounts), 1)
	ask(c.GetCapacityWithResponse(ctx))
}

func sandbox(ctx context.Context, c *api.ClientWithResponses) string {
	made := ask(c.CreateSandboxWithResponse(ctx, &api.CreateSandboxParams{IdempotencyKey: of("one")}, api.SandboxSpec{
		Name: of("typed"), Labels: &api.Labels{"made": "by"}, Network: &api.NetworkSpec{Mode: of(api.NetworkSpecMode("none"))},
		Lifecycle: &api.LifecycleSpec{IdleMs: of(600000), Then: of(api.LifecycleSpecThen("stop"))},
	})).JSON201
	box := made.Id
	list := ask(c.ListSandboxesWithResponse(ctx, &api.ListSandboxesParams{Label: &[]string{"made=by"}, Limit: of(10)}))
	same(list.JSON200.Sandboxes[0].Id, box)
	same(string(ask(c.GetSandboxWithResponse(ctx, box)).JSON200.State), "running")
	changed := ask(c.ChangeSandboxWithResponse(ctx, box, nil, api.SandboxChange{Lifecycle: &api.LifecycleSpec{IdleMs: of(700000)}}))
	same(string(changed.JSON200.Lifecycle.Then), "stop")
	ask(c.StopSandboxWithResponse(ctx, box, nil, api.StopSandboxJSONRequestBody{}))
	ask(c.StartSandboxWithResponse(ctx, box, nil, api.StartSandboxJSONRequestBody{}))
	same(string(ask(c.GetUsageWithResponse(ctx, box)).JSON200.State), "running")
	same(string(ask(c.GetNetworkWithResponse(ctx, box, nil)).JSON200.Policy.Mode), "none")
	return box
}

func commands(ctx context.Context, c *api.ClientWithResponses, box string) {
	ran := ask(c.ExecWithResponse(ctx, box, nil, api.ExecSpec{Command: of("echo out"), Env: &api.Env{"A": "b"}})).JSON200
	same(ran.Stdout, "out\n")
	same(*ran.Process.ExitCode, 0)
	cat := ask(c.StartProcessWithResponse(ctx, box, nil, api.ProcessSpec{Argv: &[]string{"cat"}, OpenStdin: of(true)})).JSON201.Id
	same(len(ask(c.ListProcessesWithResponse(ctx, box)).JSON200.Processes), 2)
	same(string(ask(c.GetProcessWithResponse(ctx, box, cat)).JSON200.State), "running")
	var signal api.SignalSpec
	if err := json.Unmarshal([]byte(`{"signal":"CONT"}`), &signal); err != nil {
		panic(err)
	}
	ask(c.SignalProcessWithResponse(ctx, box, cat, nil, signal))
	ask(c.WriteStdinWithBodyWithResponse(ctx, box, cat, &api.WriteStdinParams{Close: of(true)}, octets, strings.NewReader("typed\n")))
	same(*ask(c.WaitProcessWithResponse(ctx, box, cat, nil)).JSON200.ExitCode, 0)
	same(string(ask(c.ReadOutputWithResponse(ctx, box, cat, nil)).Body), "typed\n")
	same(strings.Count(read(c.FollowProcess(ctx, box, cat, nil)), "\n"), 2)
	ask(c.DeleteProcessWithResponse(ctx, box, cat))
	terminal := ask(c.StartProcessWithResponse(ctx, box, nil, api.ProcessSpec{
		Argv: &[]string{"cat"}, Terminal: &api.TerminalSize{Rows: 24, Columns: 80}})).JSON201.Id
	refused(c.AttachTerminalWithResponse(ctx, box, terminal, nil))
}

func mounts(ctx context.Context, c *api.ClientWithResponses, box string) {
	mounted := ask(c.MountDirectoryWithResponse(ctx, box, nil, api.MountSpec{Name: "notes", Target: "/notes", ReadOnly: of(true)}))
	same(mounted.JSON200.Mounts[0].Target, "/notes")
	ask(c.UnmountDirectoryWithResponse(ctx, box, &api.UnmountDirectoryParams{Target: "/notes"}))
}

func ports(ctx context.Context, c *api.ClientWithResponses, box string) {
	ask(c.StartProcessWithResponse(ctx, box, nil, api.ProcessSpec{
		Command: of("cd /etc && python3 -m http.server 8080 --bind 127.0.0.1")}))
	for listens := false; !listens; time.Sleep(50 * time.Millisecond) {
		for _, port := range ask(c.ListPortsWithResponse(ctx, box)).JSON200.Ports {
			listens = listens || port.Listening
		}
	}
	same(ask(c.OpenPortWithResponse(ctx, box, nil, api.PortSpec{Port: 8080})).JSON200.Open, true)
	same(read(c.ReachPort(ctx, box, 8080, "hostname")), "box\n")
	refused(c.OpenTunnelWithResponse(ctx, box, 8080))
	ask(c.ClosePortWithResponse(ctx, box, 8080))
}

func files(ctx context.Context, c *api.ClientWithResponses, box string) {
	written := ask(c.WriteFileWithBodyWithResponse(ctx, box, &api.WriteFileParams{Path: of(tmpA)}, octets, strings.NewReader("a line\n")))
	same(written.JSON200.Size, 7)
	same(string(ask(c.ReadFileWithResponse(ctx, box, &api.ReadFileParams{Path: of(tmpA)})).Body), "a line\n")
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	must(must(form.CreateFormFile("file", "formed")).Write([]byte("in a form")))
	form.Close()
	sent := ask(c.WriteFilesWithBodyWithResponse(ctx, box, &api.WriteFilesParams{Path: of("/tmp")}, form.FormDataContentType(), &body))
	same(len(*sent.JSON200.Files), 1)
	same(string(ask(c.StatFileWithResponse(ctx, box, &api.StatFileParams{Path: of(tmpA)})).JSON200.Type), "file")
	outcomes := must(ask(c.StatFilesWithResponse(ctx, box, api.StatFilesJSONRequestBody{Paths: &api.FilePaths{tmpA, "/tmp/none"}})).JSON200.AsFileOutcomes())
	same(len(outcomes.Entries), 2)
	ask(c.ListFilesWithResponse(ctx, box, &api.ListFilesParams{Path: of("/tmp"), Glob: &[]string{"*"}}))
	ask(c.MakeDirectoryWithResponse(ctx, box, nil, api.MakeDirectoryJSONRequestBody{Path: of("/tmp/d/e"), Parents: of(true)}))
	ask(c.CopyFileWithResponse(ctx, box, nil, api.CopyFileJSONRequestBody{From: of(tmpA), To: of("/tmp/d/b")}))
	ask(c.MoveFileWithResponse(ctx, box, nil, api.MoveFileJSONRequestBody{From: of("/tmp/d/b"), To: of("/tmp/d/c")}))
	ask(c.ChangeFileModeWithResponse(ctx, box, nil, api.ChangeFileModeJSONRequestBody{Path: of("/tmp/d/c"), Mode: "0600"}))
	ask(c.ChangeFileOwnerWithResponse(ctx, box, nil, api.ChangeFileOwnerJSONRequestBody{Path: of("/tmp/d/c"), Owner: "0:0"}))
	ask(c.MakeSymlinkWithResponse(ctx, box, nil, api.MakeSymlinkJSONRequestBody{Path: of("/tmp/l"), Target: "a"}))
	name := "user.origin"
	ask(c.WriteFileAttributeWithBodyWithResponse(ctx, box, &api.WriteFileAttributeParams{Path: of(tmpA), Name: name}, octets, strings.NewReader("here")))
	same(string(ask(c.ReadFileAttributeWithResponse(ctx, box, &api.ReadFileAttributeParams{Path: of(tmpA), Name: of(name)})).Body), "here")
	ask(c.RemoveFileAttributeWithResponse(ctx, box, &api.RemoveFileAttributeParams{Path: of(tmpA), Name: name}))
	found := ask(c.FindFilesWithResponse(ctx, box, api.FindFilesJSONRequestBody{Path: of("/tmp"), Globs: &[]string{"c"}, Stream: of(false)}))
	same(len(found.JSON200.Entries), 1)
	lines := ask(c.SearchFilesWithResponse(ctx, box, api.SearchFilesJSONRequestBody{Path: of("/tmp"), Pattern: "line", Stream: of(false)}))
	same(len(lines.JSON200.Matches), 2)
	watched := read(c.WatchFiles(ctx, box, &api.WatchFilesParams{Path: of("/tmp"), ForMs: of(50)}))
	same(strings.Contains(watched, "watching"), true)
	tar := ask(c.ReadTarWithResponse(ctx, box, &api.ReadTarParams{Path: []string{"/tmp/d"}})).Body
	unpacked := ask(c.WriteTarWithBodyWithResponse(ctx, box, &api.WriteTarParams{Path: of("/tmp/again")}, "application/x-tar", bytes.NewReader(tar)))
	same(unpacked.JSON200.Count > 0, true)
	ask(c.RemoveFileWithResponse(ctx, box, nil, api.RemoveFileJSONRequestBody{Path: of("/tmp/d"), Recursive: of(true)}))
}

func access(ctx context.Context, c *api.ClientWithResponses, box string) {
	ask(c.MakeTokenWithResponse(ctx, box, api.TokenSpec{Verbs: []api.Verb{"look"}}))
	ask(c.SignUrlWithResponse(ctx, box, api.UrlSpec{Method: "GET", Path: tmpA}))
	ask(c.EndTokensWithResponse(ctx, box))
	key := ask(c.MakeKeyWithResponse(ctx, api.KeySpec{Label: "made", Scopes: []api.Scope{"read"}})).JSON201.Id
	ask(c.ListKeysWithResponse(ctx))
	ask(c.EndKeyWithResponse(ctx, key))
	ask(c.SetQuotaWithResponse(ctx, "team", api.Quota{Sandboxes: of(10)}))
	same(*ask(c.GetQuotaWithResponse(ctx, "team")).JSON200.Quota.Sandboxes, 10)
}

func kernels(ctx context.Context, c *api.ClientWithResponses) {
	ran := ask(c.RunKernelWithResponse(ctx, nil, api.KernelRunSpec{Code: "6 * 7"})).JSON200
	same(ran.Output, "42")
	kernel := ask(c.CreateKernelWithResponse(ctx, nil, api.KernelSpec{Name: of("typed")})).JSON201.Id
	ask(c.ListKernelsWithResponse(ctx, nil))
	ask(c.RunInKernelWithResponse(ctx, kernel, nil, api.KernelRunInSpec{Code: "globalThis.n = 1"}))
	fork := ask(c.ForkKernelWithResponse(ctx, kernel, nil, api.ForkKernelJSONRequestBody{})).JSON201.Id
	snapshot := ask(c.SnapshotKernelWithResponse(ctx, kernel, api.SnapshotKernelJSONRequestBody{})).Body
	ask(c.RestoreKernelWithBodyWithResponse(ctx, &api.RestoreKernelParams{CoveManifest: of(`{"name":"restored"}`)}, octets, bytes.NewReader(snapshot)))
	ask(c.ResetKernelWithResponse(ctx, kernel, nil, api.ResetKernelJSONRequestBody{}))
	same(string(ask(c.GetKernelWithResponse(ctx, kernel)).JSON200.State), "idle")
	ask(c.DeleteKernelWithResponse(ctx, fork))
	refused(c.ConnectKernelsWithResponse(ctx))
}
