/* Only in builds with AddressSanitizer: keeps its runtime quiet about the set-up child's stack.
 *
 * Before every call that does not return, the runtime clears what it knows of the stack, and warns
 * on standard error where the stack is not the thread's own. The set-up child of a box has such a
 * stack and shares its maker's standard error, of which tests say exactly what it holds. Nothing
 * here jumps out of a function, so there is nothing to clear. */
void __asan_handle_no_return(void);

void __asan_handle_no_return(void)
{
}
