/** The CPU time of this process, in ms: what a computation takes of it does not depend on what else the machine does. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}
