import { useEffect, useState } from 'preact/hooks'
import { Icon } from './icons.tsx'
import { useServices, useWatched } from './services.ts'

/** How long a message stays, unless the pointer or the focus is on it; in milliseconds. */
const STAYS_MS = 12_000

/** The message at the foot of the page. */
export function ToastLine() {
  const { toasts } = useServices()
  const toast = useWatched(toasts)
  const [isHeld, hold] = useState(false)
  useEffect(() => {
    if (toast === null || isHeld) return undefined
    const timer = setTimeout(() => toasts.close(), STAYS_MS)
    return () => clearTimeout(timer)
  }, [toast, toasts, isHeld])
  const undo = async () => {
    toasts.close()
    await toast?.undo?.().catch((error: unknown) => toasts.show(`That did not work: ${reasonOf(error)}`))
  }
  return (
    <div class="toasts" role="status">
      {toast !== null && (
        // biome-ignore lint/a11y/noStaticElementInteractions: who points at it or tabs to it needs it longer
        <div
          class="toast"
          onMouseEnter={() => hold(true)}
          onMouseLeave={() => hold(false)}
          onFocusIn={() => hold(true)}
          onFocusOut={() => hold(false)}
        >
          <span>{toast.text}</span>
          {toast.undo !== undefined && (
            <button type="button" class="small" onClick={() => void undo()}>
              Undo
            </button>
          )}
          <button type="button" class="bare" aria-label="Close" onClick={() => toasts.close()}>
            <Icon name="close" />
          </button>
        </div>
      )}
    </div>
  )
}

/** The reason in an error of PouchDB or of this app. */
export function reasonOf(error: unknown): string {
  const { reason, message } = error as { readonly reason?: string; readonly message?: string }
  return reason ?? message ?? 'the reason is not known'
}
