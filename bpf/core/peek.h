/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads fields of kernel objects that other CPUs may change meanwhile. */
#ifndef UNSPIN_BPF_PEEK_H
#define UNSPIN_BPF_PEEK_H

/* Since 6.2. The result can be read directly, without a helper call for each field. */
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
