// What an interpreter in a box tells: one JSON object, of which the code in the same process may have had a hand. So it is looked
// through, and what is no frame is nothing.
import type { KernelExecutionError } from "./types.js";

export interface Frame {
    ready?: boolean;
    log?: string;
    id?: number;
    json?: string;
    number?: string;
    serialization?: string;
    isFinal?: boolean;
    error?: KernelExecutionError;
}

const TYPES: Record<keyof Frame, string> = {
    ready: "boolean", log: "string", id: "number", json: "string", number: "string", serialization: "string", isFinal: "boolean", error: "object",
};

export function frameOf(text: string): Frame | undefined {
    let frame: unknown;
    try {
        frame = JSON.parse(text);
    } catch {
        return undefined;
    }
    if (typeof frame !== "object" || frame === null) return undefined;
    for (const [name, type] of Object.entries(TYPES)) {
        const value = (frame as Record<string, unknown>)[name];
        if (value !== undefined && (value === null || typeof value !== type)) return undefined;
    }
    const { error } = frame as { error?: Record<string, unknown> };
    if (error !== undefined && (typeof error.name !== "string" || typeof error.message !== "string")) return undefined;
    if (error?.stack !== undefined && typeof error.stack !== "string") return undefined;
    return frame as Frame;
}
