// What getInfo() says, from what is known without asking.
import type { SandboxView } from "@cove/client";
import type { MountManager, SandboxInfo } from "@mastra/core/workspace";

const MIB = 1024 * 1024;

type Known = Pick<SandboxInfo, "id" | "name" | "provider" | "status" | "createdAt">;

export function infoOf(
    known: Known,
    view: SandboxView | undefined,
    mounts: MountManager,
    more: { lastUsed: number | undefined; workingDirectory: string | undefined },
): SandboxInfo {
    const info: SandboxInfo = {
        ...known,
        mounts: [...mounts.entries]
            .filter(([, entry]) => entry.state === "mounted")
            .map(([path, entry]) => ({ path, filesystem: entry.filesystem.provider })),
    };
    const metadata: Record<string, unknown> = {};
    if (more.lastUsed !== undefined) info.lastUsedAt = new Date(more.lastUsed);
    if (more.workingDirectory !== undefined) metadata["workingDirectory"] = more.workingDirectory;
    if (view) {
        const { memory_bytes, cpus, disk_bytes } = view.resources;
        if (view.created_at !== null) info.createdAt = new Date(view.created_at);
        if (view.lifecycle.deadline !== null) info.timeoutAt = new Date(view.lifecycle.deadline);
        info.resources = {};
        if (memory_bytes !== null) info.resources.memoryMB = Math.round(memory_bytes / MIB);
        if (cpus !== null) info.resources.cpuCores = cpus;
        if (disk_bytes !== null) info.resources.diskMB = Math.round(disk_bytes / MIB);
        Object.assign(metadata, { sandboxId: view.id, root: view.root, user: view.user, network: view.network.mode });
    }
    info.metadata = metadata;
    return info;
}
