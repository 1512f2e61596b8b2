/** The path of a program, null when there is none of this name. */
export function programPath(name: string): string | null
