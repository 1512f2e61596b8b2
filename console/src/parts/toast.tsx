/** Short news of what was done, at the lower edge. */
import { signal } from '@preact/signals'
import { en } from '../strings/en.ts'
import { Button } from './button.tsx'
import { Icon } from './icon.tsx'

interface Toast {
  readonly id: number
  readonly text: string
}

const toasts = signal<readonly Toast[]>([])
/** In ms. */
const SHOWN_MS = 6000
const MAX_TOASTS = 3
let lastId = 0

/** Says what was done; screen readers announce it. */
export function say(text: string): void {
  lastId += 1
  const id = lastId
  toasts.value = [...toasts.value, { id, text }].slice(-MAX_TOASTS)
  setTimeout(() => remove(id), SHOWN_MS)
}

function remove(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id)
}

/** Where they appear; once in the page. */
export function ToastHost() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, text }) => (
        <div class="toast" key={id}>
          <Icon name="check" />
          <span>{text}</span>
          <Button kind="quiet" icon="close" label={en.common.close} onClick={() => remove(id)} />
        </div>
      ))}
    </div>
  )
}
