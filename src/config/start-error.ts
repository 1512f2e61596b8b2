/** The server cannot start. The message is one clear line for the operator. */
export class StartError extends Error {
  /**
   * @param message one line with the problem and what to do about it
   * @param options.cause the underlying error
   */
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'StartError'
  }
}

type SystemError = NodeJS.ErrnoException & { address?: string; port?: number }

/**
 * The line to print when the server does not start.
 * @param error a StartError, an error of the operating system, or any other
 * @returns one line without a stack
 */
export function startFailureLine(error: unknown): string {
  if (error instanceof StartError) return oneLine(error.message)
  if (!(error instanceof Error)) return oneLine(`settee cannot start: ${String(error)}`)
  const system = error as SystemError
  return oneLine(
    (system.syscall === 'listen' || system.syscall === 'getaddrinfo' || system.syscall === 'bind'
      ? listenProblem(system)
      : fileProblem(system)) ?? `settee cannot start: ${error.message}`,
  )
}

function listenProblem({ code, address, port, message }: SystemError): string {
  switch (code) {
    case 'EADDRINUSE':
      return `Port ${port} on ${address} is already in use; stop the program that uses it, or choose another port with --port.`
    case 'EACCES':
      return `Port ${port} on ${address} is not allowed for this account; choose a port above 1023 with --port.`
    case 'EADDRNOTAVAIL':
      return `This machine does not have the address ${address}; choose one of its own with --bind.`
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return 'This machine does not know the address given with --bind; choose one of its own.'
    default:
      return `settee cannot listen: ${message}`
  }
}

function fileProblem({ code, path }: SystemError): string | null {
  if (path === undefined) return code === 'ENOSPC' ? 'The disk is full.' : null
  switch (code) {
    case 'EACCES':
    case 'EPERM':
      return `${path} cannot be read or written by this account (${code}); change its owner or its mode.`
    case 'EROFS':
      return `${path} is on a read-only file system.`
    case 'ENOTDIR':
    case 'EEXIST':
      return `${path} cannot be a folder: a part of this path is a file.`
    case 'ENOSPC':
    case 'EDQUOT':
      return `${path} cannot be written: the disk is full.`
    default:
      return null
  }
}

function oneLine(text: string): string {
  return text.replaceAll(/\s*[\r\n]+\s*/g, ' ').trim()
}
