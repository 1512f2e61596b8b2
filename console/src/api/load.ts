/** Data of a screen: loaded when the screen opens, and again on request or at an interval. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { asFailure, type Failure, isAborted } from './failure.ts'

export interface Loaded<Data> {
  /** undefined until the first answer; stays as it was when a later load fails. */
  readonly data: Data | undefined
  /** Why the last load failed; null when it did not. */
  readonly failure: Failure | null
  readonly isLoading: boolean
  /** Loads again. */
  reload(): void
}

/**
 * Loads data for a component.
 * @param key what the data depends on; a change loads anew, and forgets the old data
 * @param every the interval in ms at which it is loaded again while the page can be seen; absent: never
 */
export function useLoad<Data>(
  load: (signal: AbortSignal) => Promise<Data>,
  key: string,
  { every }: { readonly every?: number } = {},
): Loaded<Data> {
  const [state, setState] = useState<State<Data>>({ key, data: undefined, failure: null, isLoading: true })
  const [round, setRound] = useState(0)
  const latest = useRef(load)
  latest.current = load
  const reload = useCallback(() => setRound((count) => count + 1), [])
  useEffect(() => {
    const controller = new AbortController()
    setState((old) => ({
      ...(old.key === key ? old : { data: undefined, failure: null }),
      key,
      isLoading: true,
    }))
    latest.current(controller.signal).then(
      (data) => {
        if (!controller.signal.aborted) setState({ key, data, failure: null, isLoading: false })
      },
      (error: unknown) => {
        if (controller.signal.aborted || isAborted(error)) return
        setState((old) => ({ ...old, failure: asFailure(error), isLoading: false }))
      },
    )
    return () => controller.abort()
  }, [key, round])
  useEffect(() => (every === undefined ? undefined : repeat(reload, every)), [every, reload])
  // The first render after a change of the key must not show the old data.
  const shown = state.key === key ? state : { data: undefined, failure: null, isLoading: true }
  return { data: shown.data, failure: shown.failure, isLoading: shown.isLoading, reload }
}

interface State<Data> {
  readonly key: string
  readonly data: Data | undefined
  readonly failure: Failure | null
  readonly isLoading: boolean
}

/** @returns a function that ends it */
function repeat(run: () => void, every: number): () => void {
  const runIfSeen = () => {
    if (document.visibilityState === 'visible') run()
  }
  const timer = setInterval(runIfSeen, every)
  document.addEventListener('visibilitychange', runIfSeen)
  return () => {
    clearInterval(timer)
    document.removeEventListener('visibilitychange', runIfSeen)
  }
}
