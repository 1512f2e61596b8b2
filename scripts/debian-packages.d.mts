/** The program that each Debian package provides. */
export const PROGRAMS: Readonly<Record<string, string>>
/** @returns the path of a program; null if there is none of this name */
export function programPath(name: string): string | null
