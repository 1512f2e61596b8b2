import type { ComponentChildren } from 'preact'
import { Icon, type IconName } from './icon.tsx'

interface Look {
  /** `plain` by default; `primary` once in a view; `danger` for destructive acts; `quiet` without a border. */
  readonly kind?: 'plain' | 'primary' | 'danger' | 'quiet'
  readonly icon?: IconName
  readonly isSmall?: boolean
}

interface ButtonProps extends Look {
  readonly children?: ComponentChildren
  /** The name of a button that shows only an icon. */
  readonly label?: string
  readonly type?: 'button' | 'submit'
  readonly disabled?: boolean
  /** While true, it shows that it works, and cannot be used. */
  readonly isBusy?: boolean
  /** Whether a switch is on; absent: it is no switch. */
  readonly isPressed?: boolean
  readonly isExpanded?: boolean
  readonly class?: string
  readonly onClick?: (event: MouseEvent) => void
}

export function Button(props: ButtonProps) {
  const { children, label, type = 'button', disabled = false, isBusy = false, isPressed, isExpanded } = props
  return (
    <button
      type={type}
      class={`${classOf(props)} ${props.class ?? ''}`}
      aria-label={label}
      title={label}
      aria-busy={isBusy}
      aria-pressed={isPressed}
      aria-expanded={isExpanded}
      // A disabled button would lose the focus.
      aria-disabled={isBusy || undefined}
      disabled={disabled}
      onClick={isBusy ? (event) => event.preventDefault() : props.onClick}
    >
      {isBusy ? <span class="spinner" aria-hidden="true" /> : props.icon && <Icon name={props.icon} />}
      {children !== undefined && <span>{children}</span>}
    </button>
  )
}

interface LinkButtonProps extends Look {
  readonly href: string
  readonly children: ComponentChildren
}

/** A link that looks like a button. */
export function LinkButton(props: LinkButtonProps) {
  return (
    <a class={classOf(props)} href={props.href}>
      {props.icon && <Icon name={props.icon} />}
      <span>{props.children}</span>
    </a>
  )
}

function classOf({ kind = 'plain', isSmall = false }: Look): string {
  return `button is-${kind}${isSmall ? ' is-small' : ''}`
}
