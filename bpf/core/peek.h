/* SPDX-License-Identifier: GPL-2.0-only */
/* How programs read what others of the kernel's write. */
#ifndef UNSPIN_BPF_PEEK_H
#define UNSPIN_BPF_PEEK_H

/* Since 6.2 a program may read what it holds to be a task without a call for each word. */
extern void *bpf_rdonly_cast(const void *obj, u32 btf_id) __ksym __weak;

#define PEEK(object, type, field)                                                            \
	({                                                                                   \
		typeof(((type *)0)->field) value = 0;                                        \
		if (bpf_ksym_exists(bpf_rdonly_cast))                                        \
			value = ((type *)bpf_rdonly_cast(object, bpf_core_type_id_kernel(type))) \
					->field;                                             \
		else                                                                         \
			bpf_core_read(&value, sizeof(value), &((type *)(object))->field);    \
		value;                                                                       \
	})

#endif /* UNSPIN_BPF_PEEK_H */
