/** What went wrong with a call: the server's own words, or what the browser knows. */
export class Failure extends Error {
  /** 0: there was no answer. */
  readonly status: number
  /** The member `error` of the answer; `unreachable` without an answer. */
  readonly code: string
  /** The answer's `X-Couch-Request-ID`, by which the server's log can be searched; null without an answer. */
  readonly requestId: string | null

  constructor(status: number, code: string, reason: string, requestId: string | null, cause?: unknown) {
    super(reason, { cause })
    this.name = 'Failure'
    this.status = status
    this.code = code
    this.requestId = requestId
  }
}

/** @returns the failure itself, or one that states the reason of any other error */
export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) return error
  return new Failure(0, 'error', error instanceof Error ? error.message : String(error), null, error)
}

/** Whether a call was ended by the page itself. */
export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError'
}

/** @param text the body of an answer whose status is an error's */
export function failureOf(answer: Response, text: string): Failure {
  const requestId = answer.headers.get('x-couch-request-id')
  const { error, reason } = membersOf(text)
  return new Failure(
    answer.status,
    error ?? 'http_error',
    reason ?? (text.slice(0, 300).trim() || `${answer.status} ${answer.statusText}`),
    requestId,
  )
}

/** A proxy may have answered with a page of its own. */
function membersOf(text: string): { readonly error?: string; readonly reason?: string } {
  try {
    const { error, reason } = JSON.parse(text) as { error?: unknown; reason?: unknown }
    return {
      ...(typeof error === 'string' && { error }),
      ...(typeof reason === 'string' && { reason }),
    }
  } catch {
    return {}
  }
}
