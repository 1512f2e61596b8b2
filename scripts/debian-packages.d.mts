/** Of each package of Debian, the program that it is installed for. */
export const PROGRAMS: Readonly<Record<string, string>>
/** The path of a program, null when there is none of this name. */
export function programPath(name: string): string | null
